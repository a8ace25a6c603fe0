package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/apiserver"
	"github.com/kubewake/kubewake/tests/bench/measured"
)

func main() {
	if os.Getenv(measured.SpecEnv) != "" {
		if err := child(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0) // as a crash would: nothing is closed that child has not
	}
	if s := os.Getenv(streamEnv); s != "" {
		if err := streamChild(s); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// options of a run.
type options struct {
	sizes   []int // those of the command line, or nil
	pairs   int
	out     string
	profile string
	what    string
	events  int
	parts   string
	save    string
	draw    string
}

func parseOptions() (o options, err error) {
	sizes := flag.String("sizes", "",
		"numbers of pods; 1000,5000,20000, or 1000,10000 for growth and 1000,5000 for api, if none are stated")
	flag.IntVar(&o.pairs, "pairs", 0, "rounds of each measurement; 3, or 5 for idle and api, if not stated")
	flag.StringVar(&o.out, "out", "bench/figures.md", "file to write the tables into; empty: none")
	flag.StringVar(&o.profile, "profile", "", "folder for CPU and heap profiles of each measured program; costs time")
	flag.StringVar(&o.what, "what", "restart,idle,stream,api,growth,day", "what to measure: one of these, or several")
	flag.IntVar(&o.events, "events", 40_000, "stream: updates of a feed")
	flag.StringVar(&o.parts, "parts", "speed,latency,work,bytes,idle", "stream: what of it")
	flag.StringVar(&o.save, "save", "../docs/pictures/growth.json",
		"growth: file for all that was measured, beside the pictures; what it has of other sizes stays, if it is "+
			"of this machine; empty: none")
	flag.StringVar(&o.draw, "draw", "", "measure nothing: make tables and pictures of a file that -save has written")
	flag.Parse()
	for s := range strings.SplitSeq(*sizes, ",") {
		if s == "" {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(s))
		if err != nil || n < 100 {
			return o, fmt.Errorf("-sizes: %q is not a number of at least 100", s)
		}
		o.sizes = append(o.sizes, n)
	}
	slices.Sort(o.sizes)
	if o.pairs < 0 {
		return o, errors.New("-pairs: must not be negative")
	}
	if o.events < 10_000 { // work takes as many from a feed
		return o, errors.New("-events: must be at least 10000")
	}
	if o.profile != "" {
		if o.profile, err = filepath.Abs(o.profile); err == nil {
			err = os.MkdirAll(o.profile, 0o755)
		}
	}
	return o, err
}

func run(ctx context.Context) error {
	o, err := parseOptions()
	if err != nil {
		return err
	}
	if o.draw != "" {
		o.what = "draw"
	}
	given, pairs := o.sizes, o.pairs
	for what := range strings.SplitSeq(o.what, ",") {
		var text string
		markers := benchMarkers
		if o.sizes = given; given == nil {
			o.sizes = sizesOf(what)
		}
		o.pairs = cmp.Or(pairs, pairsOf(what))
		switch what {
		case "restart":
			text, err = runRestart(ctx, o)
		case "idle":
			markers = idleMarkers
			text, err = runIdle(ctx, o)
		case "stream":
			markers = streamMarkers
			text, err = runStream(ctx, o)
		case "api":
			markers = apiMarkers
			text, err = runAPI(ctx, o)
		case "growth":
			markers = growthMarkers
			text, err = runGrowth(ctx, o)
		case "draw":
			markers = growthMarkers
			text, err = drawn(ctx, o.draw)
		case "day":
			if err := runDay(ctx, o); err != nil {
				return err
			}
			continue
		default:
			err = fmt.Errorf("-what: %q is none of restart, idle, stream, api, growth and day", what)
		}
		if err != nil {
			return err
		}
		fmt.Println(text)
		if o.out == "" {
			continue
		}
		if err := insert(o.out, text, markers); err != nil {
			return err
		}
	}
	return nil
}

// sizesOf returns the default sizes of a measurement.
func sizesOf(what string) []int {
	switch what {
	case "growth":
		return []int{1_000, 10_000}
	case "api":
		return []int{1_000, 5_000}
	}
	return []int{1_000, 5_000, 20_000}
}

// pairsOf returns the default number of rounds of a measurement.
func pairsOf(what string) int {
	if what == "idle" || what == "api" {
		return 5
	}
	return 3
}

// runRestart takes the measurements of restarts and returns their tables.
func runRestart(ctx context.Context, o options) (text string, err error) {
	b, err := newBench(ctx, o)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	res, err := b.measure(ctx)
	if err != nil {
		return "", err
	}
	return res.markdown(), nil
}

// bench is a run.
type bench struct {
	options
	dir    string
	server *apiserver.Server
	pods   *pods
	// programs are the paths of the other programs, see build.
	programs map[kind]string
}

// newBench starts an API server. The caller closes the bench.
func newBench(ctx context.Context, o options) (b *bench, err error) {
	b = &bench{options: o}
	if b.dir, err = os.MkdirTemp("", "kubewake-bench-"); err != nil {
		return nil, err
	}
	if b.server, err = apiserver.Run(ctx, apiserver.Options{NoAudit: true}); err == nil {
		b.pods, err = newPods(ctx, b.server)
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// close stops the server and removes the files.
func (b *bench) close() error {
	var err error
	if b.server != nil {
		err = b.server.Stop()
	}
	return errors.Join(err, os.RemoveAll(b.dir))
}

// measure takes all measurements.
func (b *bench) measure(ctx context.Context) (*results, error) {
	res := &results{machine: machine(b.pods.version), pairs: b.pairs}
	for _, n := range b.sizes {
		size, err := b.restarts(ctx, n)
		if err != nil {
			return nil, fmt.Errorf("%d pods: %w", n, err)
		}
		res.sizes = append(res.sizes, size)
	}
	for round := range b.pairs {
		p, err := b.expiry(ctx, round)
		if err != nil {
			return nil, fmt.Errorf("restart of the API server: %w", err)
		}
		res.expiry = append(res.expiry, p)
	}
	return res, nil
}

// restarts creates pods until there are n, fills a file with them, and
// measures pairs of restarts.
func (b *bench) restarts(ctx context.Context, n int) (sizeResult, error) {
	res := sizeResult{pods: n}
	var err error
	if res.meanJSON, err = b.pods.grow(ctx, n); err != nil {
		return res, err
	}
	progress("%d pods of %d bytes as JSON on average", n, res.meanJSON)
	if res.idle, err = b.start(ctx, idle, restart, n, 0); err != nil {
		return res, err
	}
	if res.fill, err = b.start(ctx, kubewake, fill, n, reflector.ConfirmBookmark); err != nil {
		return res, err
	}
	progress("first sync into the file: %v, %d MiB", res.fill.Synced, res.fill.FileSize>>20)
	for range b.pairs {
		var p pair
		if p.kubewake, err = b.restart(ctx, kubewake, n); err != nil {
			return res, err
		}
		if p.stock, err = b.restart(ctx, stock, n); err != nil {
			return res, err
		}
		progress("told and synced: kubewake %v and %v, client-go %v and %v",
			p.kubewake.Told, p.kubewake.Synced, p.stock.Told, p.stock.Synced)
		res.pairs = append(res.pairs, p)
	}
	// A program that closes in order notes the last version it was told.
	if _, err = b.start(ctx, kubewake, fill, n, reflector.ConfirmBookmark); err != nil {
		return res, err
	}
	res.still, err = b.start(ctx, kubewake, restart, n, reflector.ConfirmBookmark)
	return res, err
}

// restart starts a program after something other than a pod was written, as is always the
// case on a server in use.
func (b *bench) restart(ctx context.Context, k kind, n int) (report, error) {
	if err := b.pods.writeOther(ctx); err != nil {
		return report{}, err
	}
	return b.start(ctx, k, restart, n, reflector.ConfirmBookmark)
}

// start runs a program that restarts or fills, to its end.
func (b *bench) start(ctx context.Context, k kind, m mode, n int, c reflector.Confirm) (report, error) {
	return b.life(ctx, spec{Kind: k, Mode: m, Host: b.server.Config().Host, Pods: n, Confirm: int(c)})
}

// life runs a program that makes one report, to its end.
func (b *bench) life(ctx context.Context, s spec) (report, error) {
	p, err := b.launch(ctx, s)
	if err != nil {
		return report{}, err
	}
	var r report
	if err := p.next(&r); err != nil {
		return r, errors.Join(err, p.end())
	}
	err = p.end()
	r.Processor = p.processor()
	return r, err
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
