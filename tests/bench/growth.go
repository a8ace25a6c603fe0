package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/bench/measured"
)

// The programs whose growth is measured, in the order of their turns, those whose
// restarts are measured, and those whose reads are.
var (
	peers     = []kind{kubewake, stock, measured.Listed, measured.Manager, measured.SQLite}
	restarted = slices.Insert(slices.Clone(peers), 1, measured.Bookmark)
	readers   = []kind{kubewake, measured.InMemory, stock, measured.Manager, measured.SQLite}
)

// keeps says whether a program of that kind has a file.
func keeps(k kind) bool { return k == kubewake || k == measured.SQLite }

// runGrowth measures programs and limits at each size, takes over the other sizes that an
// earlier run on this machine has measured, and returns the tables. It saves and draws
// all of this.
func runGrowth(ctx context.Context, o options) (text string, err error) {
	b, err := newBench(ctx, o)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.build(ctx); err != nil {
		return "", err
	}
	run := &measured.Growth{Machine: machine(b.pods.version)}
	for _, n := range o.sizes {
		s, err := b.grown(ctx, n)
		if err != nil {
			return "", fmt.Errorf("%d pods: %w", n, err)
		}
		run.Sizes = append(run.Sizes, s)
	}
	all := &measured.Growth{}
	if o.save != "" {
		if old, err := measured.LoadGrowth(o.save); err == nil {
			all = old
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	all.Add(run)
	if o.save == "" {
		return growthText(all), nil
	}
	if err := all.Save(o.save); err != nil {
		return "", err
	}
	return growthText(all), draw(ctx, o.save)
}

// drawn returns the tables of the saved figures, and draws them again.
func drawn(ctx context.Context, path string) (text string, err error) {
	g, err := measured.LoadGrowth(path)
	if err != nil {
		return "", err
	}
	return growthText(g), draw(ctx, path)
}

// draw makes the pictures of the saved figures, beside their file. It runs another
// program, to keep fonts out of the memory of the measured ones.
func draw(ctx context.Context, path string) error {
	cmd := exec.CommandContext(ctx, "go", "run", "./bench/draw", path)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	return cmd.Run()
}

// runDay takes the series of a day of edge life from its test, and draws it.
func runDay(ctx context.Context, o options) error {
	path, err := filepath.Abs(filepath.Join(filepath.Dir(o.save), "edge-day.csv"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run", "^TestDayOfEdgeLife$", "./informer")
	cmd.Dir, cmd.Stdout, cmd.Stderr = "..", os.Stderr, os.Stderr
	cmd.Env = append(os.Environ(), "KUBEWAKE_DAY_SERIES="+path, "KUBEWAKE_DAYS=1")
	if err := cmd.Run(); err != nil {
		return err
	}
	return draw(ctx, path)
}

// build builds the other programs.
func (b *bench) build(ctx context.Context) error {
	b.programs = map[kind]string{}
	for k, dir := range map[kind]string{measured.SQLite: "bench/sqlite", measured.Manager: "controllerruntime/bench"} {
		b.programs[k] = filepath.Join(b.dir, strings.ReplaceAll(dir, "/", "-"))
		cmd := exec.CommandContext(ctx, "go", "build", "-o", b.programs[k], ".")
		cmd.Dir, cmd.Stderr = dir, os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("build %s: %w", dir, err)
		}
	}
	return nil
}

// grown creates pods until there are n, and measures all programs in turn, the limits,
// and restarts of the API server.
func (b *bench) grown(ctx context.Context, n int) (s measured.Size, err error) {
	s = measured.Size{Pods: n, Date: time.Now().Format(time.DateOnly), Lives: map[kind][]measured.Lives{},
		Reads: map[kind][]measured.Reads{}, Repair: map[kind][]measured.Repair{}}
	if s.MeanJSON, err = b.pods.grow(ctx, n); err != nil {
		return s, err
	}
	s.Load[0] = load()
	for range b.pairs {
		for _, k := range restarted {
			l, err := b.lives(ctx, k, n)
			if err != nil {
				return s, fmt.Errorf("%s: %w", k, err)
			}
			progress("%d pods, %s: first sync %v, restart told %v, synced %v", n, k, l.Start().Synced, l.Restart.Told,
				l.Restart.Synced)
			s.Lives[k] = append(s.Lives[k], l)
		}
		l, err := b.limits(ctx)
		if err != nil {
			return s, err
		}
		progress("%d pods: put %v, decode %v, list %v", n, l.Put, l.Decode, l.List)
		s.Limits = append(s.Limits, l)
		for _, k := range readers {
			r, err := b.reads(ctx, k, n)
			if err != nil {
				return s, fmt.Errorf("%s, reads: %w", k, err)
			}
			progress("%d pods, %s: get %v, namespace %v, all %v", n, k, r.Get, r.Namespace, r.All)
			s.Reads[k] = append(s.Reads[k], r)
		}
	}
	for round := range b.pairs {
		for _, k := range peers {
			r, err := b.repair(ctx, k, n, fmt.Sprint("growth ", n, " ", round, " ", k))
			if err != nil {
				return s, fmt.Errorf("restart of the API server: %s: %w", k, err)
			}
			progress("%d pods, API server restarted: %s was watching again after %v", n, k, r.Back)
			s.Repair[k] = append(s.Repair[k], r)
		}
	}
	s.Load[1] = load()
	return s, nil
}

// lives measures a first sync into nothing, if the program has a file, and a restart.
// A start between them is not measured: after it kubewake knows how large a list of
// metadata is, as it does for the rest of its lives.
func (b *bench) lives(ctx context.Context, k kind, n int) (l measured.Lives, err error) {
	if keeps(k) {
		if err := b.forget(k, n); err != nil {
			return l, err
		}
		first, err := b.start(ctx, k, measured.First, n, reflector.ConfirmAuto)
		if err != nil {
			return l, err
		}
		l.First = &first
		if _, err := b.start(ctx, k, fill, n, reflector.ConfirmAuto); err != nil {
			return l, err
		}
	}
	if err := b.pods.writeOther(ctx); err != nil {
		return l, err
	}
	confirm := reflector.ConfirmAuto
	if k == measured.Bookmark {
		k, confirm = kubewake, reflector.ConfirmBookmark
	}
	l.Restart, err = b.start(ctx, k, restart, n, confirm)
	return l, err
}

// reads measures reads of a program that has its file, if it keeps one.
func (b *bench) reads(ctx context.Context, k kind, n int) (measured.Reads, error) {
	s := spec{Kind: k, Mode: measured.Reading, Host: b.server.Config().Host, Pods: n}
	if k == measured.InMemory {
		s.Kind, s.Objects = kubewake, 1<<40
	}
	r, err := b.life(ctx, s)
	return r.Reads, err
}

// repair is b.expire. A program with a file is brought up to date before, so that its
// version is not too old from the start.
func (b *bench) repair(ctx context.Context, k kind, n int, round string) (r measured.Repair, err error) {
	if keeps(k) {
		if _, err := b.start(ctx, k, fill, n, reflector.ConfirmAuto); err != nil {
			return r, err
		}
	}
	e, err := b.expire(ctx, k, n, round, false)
	return measured.Repair{Back: e.Back, Equal: e.Equal, LiveReport: e.liveReport}, err
}

// forget removes the file of a program, and the files beside it.
func (b *bench) forget(k kind, n int) error {
	files, err := filepath.Glob(b.file(k, n) + "*")
	for _, f := range files {
		err = errors.Join(err, os.RemoveAll(f))
	}
	return err
}

// load is the load average over one minute and over five.
func load() string {
	data, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(data))
	if err != nil || len(fields) < 2 {
		return ""
	}
	return strings.Join(slices.Clone(fields[:2]), " ")
}
