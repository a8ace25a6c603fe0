package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// streamBench measures how fast and how late a program handles a watch's events, and how
// much it writes for them.
type streamBench struct {
	options
	dir               string
	server            *streamServer
	anywhere, rollout *feed
}

// pace says how events are sent: if the interval is 0, without a pause.
type pace struct {
	events int
	each   int // so many at a time
	every  time.Duration
}

// paced has the latencies of a run and the bytes it wrote.
type paced struct {
	streamReport
	object   float64         // mean size in protobuf
	latency  []time.Duration // sorted
	duration time.Duration
	fsync    time.Duration // of the same file system, at that time
}

func (p paced) rate() float64 { return float64(len(p.Told)) / p.duration.Seconds() }

func (p paced) quantile(q float64) time.Duration {
	return p.latency[min(int(q*float64(len(p.latency))), len(p.latency)-1)]
}

func newStreamBench(o options) (*streamBench, error) {
	b := &streamBench{options: o}
	var err error
	if b.dir, err = os.MkdirTemp("", "kubewake-bench-"); err != nil {
		return nil, err
	}
	pods := makePods()
	if b.server, err = newStreamServer(pods); err != nil {
		return nil, err
	}
	if b.anywhere, err = makeFeed(pods, o.events, anywhere()); err != nil {
		return nil, err
	}
	if b.rollout, err = makeFeed(pods, o.events, rollouts()); err != nil {
		return nil, err
	}
	progress("%d pods of %.0f bytes in protobuf, two feeds of %d updates", streamPods, b.anywhere.object, o.events)
	return b, nil
}

// fill makes, once, the file that runs of a kind begin with.
func (b *streamBench) fill(ctx context.Context, s streamSpec) (string, error) {
	f := streamSpec{Kind: filling(s.Kind), Packed: s.Packed}
	path := filepath.Join(b.dir, fmt.Sprintf("filled-%s-%v.db", f.Kind, s.Packed))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	f.DB = path
	p, err := b.launch(ctx, f)
	if err != nil {
		return "", err
	}
	if w, err := b.watched(ctx, p); err != nil {
		return "", err
	} else {
		defer close(w.ended)
	}
	return path, p.end()
}

func (b *streamBench) launch(ctx context.Context, s streamSpec) (*program, error) {
	s.Host = b.server.host
	if b.profile != "" && !fills(s.Kind) {
		s.Profile = filepath.Join(b.profile, fmt.Sprintf("stream-%s-%d", s.Kind, time.Now().UnixMilli()))
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &program{cmd: exec.CommandContext(ctx, self)}
	p.cmd.Env = append(os.Environ(), streamEnv+"="+string(text))
	p.cmd.Stderr = &p.log
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.reports = json.NewDecoder(out)
	return p, p.cmd.Start()
}

// watched returns the watch that a program has opened.
func (b *streamBench) watched(ctx context.Context, p *program) (*streamWatch, error) {
	select {
	case w := <-b.server.watching:
		return w, nil
	case <-time.After(time.Minute):
	case <-ctx.Done():
	}
	return nil, errors.Join(errors.New("a program opens no watch"), ctx.Err(), p.cmd.Process.Kill(), p.end())
}

// run starts a program, sends it events, and returns its report.
func (b *streamBench) run(ctx context.Context, s streamSpec, f *feed, at pace) (r paced, err error) {
	s.Events = at.events
	if s.Kind != streamStock {
		base, err := b.fill(ctx, s)
		if err != nil {
			return r, err
		}
		s.DB = filepath.Join(b.dir, "run.db")
		if err := copyFile(s.DB, base); err != nil {
			return r, err
		}
		defer os.Remove(s.DB)
	}
	p, err := b.launch(ctx, s)
	if err != nil {
		return r, err
	}
	w, err := b.watched(ctx, p)
	if err != nil {
		return r, err
	}
	defer close(w.ended)
	fail := func(err error) (paced, error) {
		return r, errors.Join(err, p.cmd.Process.Kill(), p.end())
	}
	var ready struct{}
	if err := p.next(&ready); err != nil {
		return fail(err)
	}
	if r.fsync, err = fsyncTime(b.dir); err != nil {
		return fail(err)
	}
	w.feed = f
	if err := w.paced(at); err != nil {
		return fail(err)
	}
	if err := p.next(&r.streamReport); err != nil {
		return fail(err)
	}
	again, err := fsyncTime(b.dir)
	if err != nil {
		return fail(err)
	}
	r.fsync = (r.fsync + again) / 2
	r.object = f.object
	if s.Scale > 0 {
		return r, p.end()
	}
	f.fill(r.Told)
	for i, sent := range w.times {
		r.latency = append(r.latency, time.Duration(r.Told[i]-sent))
	}
	slices.Sort(r.latency)
	r.duration = time.Duration(slices.Max(r.Told) - w.times[0])
	progress("%-11s packed %-5v %d events: %.0f/s, median %v, p99 %v, %.1f KB written an event %.1f events a "+
		"commit, %v processor, fsync %v",
		s.Kind, s.Packed, at.events, r.rate(), r.quantile(0.5), r.quantile(0.99), r.written()/1000, r.grouped(),
		r.Processor.Round(time.Millisecond), r.fsync)
	return r, p.end()
}

// written returns the bytes written for each event.
func (p paced) written() float64 { return float64(p.Written) / float64(len(p.Told)) }

// grouped returns the number of events in a commit.
func (p paced) grouped() float64 { return float64(len(p.Told)) / max(float64(p.Commits), 1) }

// paced sends events.
func (sw *streamWatch) paced(at pace) error {
	if at.every == 0 {
		return sw.send(at.events)
	}
	tick := time.NewTicker(at.every)
	defer tick.Stop()
	for sw.sent < at.events {
		if err := sw.send(min(at.each, at.events-sw.sent)); err != nil {
			return err
		}
		if sw.sent == at.events {
			break
		}
		select {
		case <-tick.C:
		case <-sw.gone:
			return errors.New("the program has closed its watch")
		}
	}
	return nil
}

// fsyncTime returns the median time of writing and syncing a page.
func fsyncTime(dir string) (time.Duration, error) {
	f, err := os.Create(filepath.Join(dir, "fsync"))
	if err != nil {
		return 0, err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	page := bytes.Repeat([]byte{1}, 4096)
	var all []time.Duration
	for i := range 101 {
		if _, err := f.WriteAt(page, int64(i%16)*4096); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := datasync(f); err != nil {
			return 0, err
		}
		all = append(all, time.Since(start))
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// runStream takes the measurements of the stream and returns its tables.
func runStream(ctx context.Context, o options) (string, error) {
	b, err := newStreamBench(o)
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(b.dir)
	res := &streamResults{pairs: o.pairs, object: b.anywhere.object, events: o.events}
	res.load[0] = load()
	for _, part := range strings.Split(o.parts, ",") {
		measure := map[string]func(context.Context, *streamResults) error{
			"speed": b.speed, "latency": b.latency, "work": b.work, "bytes": b.bytes, "idle": b.idle,
		}[part]
		if measure == nil {
			return "", fmt.Errorf("-parts: %q is none of speed, latency, work, bytes, idle", part)
		}
		if err := measure(ctx, res); err != nil {
			return "", fmt.Errorf("%s: %w", part, err)
		}
	}
	res.load[1] = load()
	return res.markdown(), nil
}

func (b *streamBench) speed(ctx context.Context, res *streamResults) error {
	for range b.pairs {
		round := map[string]paced{}
		for _, s := range speedKinds {
			r, err := b.run(ctx, s.spec, b.anywhere, pace{events: b.events})
			if err != nil {
				return err
			}
			round[s.name] = r
		}
		res.speed = append(res.speed, round)
	}
	return nil
}

var speedKinds = []struct {
	name string
	spec streamSpec
}{
	{"client-go", streamSpec{Kind: streamStock}},
	{"kubewake, a plain handler", streamSpec{Kind: streamPlain}},
	{durableName, streamSpec{Kind: streamDurable}},
	{"… that looks at the object of before", streamSpec{Kind: streamDurableOld}},
	{"kubewake, a durable handler, payloads packed", streamSpec{Kind: streamDurable, Packed: true}},
}

const durableName = "kubewake, a durable handler"

func (b *streamBench) latency(ctx context.Context, res *streamResults) error {
	for range b.pairs {
		var round [3]paced
		for i, at := range latencyPaces {
			var err error
			if round[i], err = b.run(ctx, streamSpec{Kind: streamDurable}, b.anywhere, at); err != nil {
				return err
			}
		}
		res.latency = append(res.latency, round)
	}
	return nil
}

// latencyPaces are one event at a time, and streams.
var latencyPaces = [3]pace{
	{events: 200, each: 1, every: 53 * time.Millisecond},
	{events: 5_000, each: 2, every: 2 * time.Millisecond},
	{events: 15_000, each: 6, every: 2 * time.Millisecond},
}

func (b *streamBench) bytes(ctx context.Context, res *streamResults) error {
	for _, c := range writeCases {
		for _, packed := range []bool{false, true} {
			for _, f := range []*feed{b.anywhere, b.rollout} {
				r, err := b.run(ctx, streamSpec{Kind: streamDurable, Packed: packed, Window: c.window,
					Settle: 6 * time.Second}, f, c.pace)
				if err != nil {
					return err
				}
				limit := c.packed
				if !packed && f == b.anywhere {
					limit = c.plain
				}
				res.writes = append(res.writes, writes{c.name, packed, f == b.rollout, r, limit})
			}
		}
	}
	return nil
}

// writeCases have some 100 events a window, and some 20.
var writeCases = []struct {
	name   string
	window time.Duration
	pace   pace
	// The bytes written for pods anywhere, with payloads packed and as they are, must be
	// at most this many times the object's size. Rollouts must stay below the bound for
	// packed payloads.
	packed, plain float64
}{
	{"1,000 events a second, a window of 100 ms", 100 * time.Millisecond,
		pace{events: 10_000, each: 1, every: time.Millisecond}, 1.5, 2.5},
	{"10 events a second, a window of 2 s", 2 * time.Second,
		pace{events: 400, each: 1, every: 100 * time.Millisecond}, 2, 3},
}
