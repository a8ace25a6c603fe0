// A restart without a cluster. The program starts a simulated API server and a child whose
// pods are in a file. It kills the child with SIGKILL while pods change, changes more while
// it is down, wakes it, and shows what that cost beside a stock client-go informer. It fails
// if the woken cache differs from the server.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	objects := flag.Int("objects", 10_000, "number of pods, at least 100")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	do := func() error { return run(ctx, max(*objects, 100), os.Stdout) }
	if server := os.Getenv(envServer); server != "" {
		do = func() error { return live(ctx, server, os.Getenv(envFile)) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, objects int, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "kubewake-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d, err := newDemo(objects, dir)
	if err != nil {
		return err
	}
	defer d.sim.Close()
	for _, step := range []struct {
		say string
		do  func(context.Context) error
	}{
		{fmt.Sprintf("filling a simulated API server with %d pods", objects), d.fill},
		{"keeping them in a file; the program is killed while pods change", d.keepAndKill},
		{"changing 1 % while it is down", d.changeWhileDown},
		{"waking it", func(ctx context.Context) error { return d.time(ctx, &d.kept, d.file) }},
		{"starting a stock client-go informer on the same server", func(ctx context.Context) error {
			return d.time(ctx, &d.stock, "")
		}},
		{"comparing the file with the server", d.compare},
	} {
		fmt.Fprintf(os.Stderr, "… %s\n", step.say)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.say, err)
		}
	}
	_, err = io.WriteString(out, d.table())
	return err
}

func (d *demo) table() string {
	var w strings.Builder
	fmt.Fprintf(&w, "%d pods, %.1f KB of JSON each; gzip makes 500 of them %.1f times smaller. The file has %s.\n",
		d.objects, d.jsonBytes/1000, d.compression, size(d.fileSize))
	fmt.Fprintf(&w, "The program was killed (SIGKILL) while pods changed. "+
		"While it was down %d were added, %d changed, %d deleted.\n\n", d.down.added, d.down.updated, d.down.deleted)
	row := func(name, kept, stock string) { fmt.Fprintf(&w, "%-34s%14s%14s\n", name, kept, stock) }
	ms := func(v float64) string { return fmt.Sprintf("%.0f ms", v) }
	count := func(n int64) string { return fmt.Sprint(n) }
	row("The same restart", "kubewake", "client-go")
	row(strings.Repeat("-", 34), strings.Repeat("-", 10), strings.Repeat("-", 10))
	row("process start to first read", ms(d.kept.FirstRead), ms(d.stock.FirstRead))
	row("            to all objects told", ms(d.kept.Told), ms(d.stock.Told))
	row("            to synced, confirmed", ms(d.kept.Synced), ms(d.stock.Synced))
	row("requests", count(d.kept.requests), count(d.stock.requests))
	row("response bodies", size(d.kept.bytes), size(d.stock.bytes))
	row("adds told", count(d.kept.Added), count(d.stock.Added))
	row("updates told", count(d.kept.Updated), count(d.stock.Updated))
	row("deletes told", count(d.kept.Deleted), count(d.stock.Deleted))
	w.WriteString("\nThe woken cache equals the server, object by object.\n")
	return w.String()
}

func size(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d B", n)
	case n < 10_000_000:
		return fmt.Sprintf("%.0f KB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.0f MB", float64(n)/1e6)
}
