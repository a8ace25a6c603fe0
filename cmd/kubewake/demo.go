package main

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/podgen"
)

// demo shows a restart without a cluster.
type demo struct {
	streams genericiooptions.IOStreams
	objects int
	seed    uint64
	dir     string
	output  string

	sim  *kubesim.Server
	gen  *podgen.Generator
	next int // number of the next new pod
}

func newDemo(streams genericiooptions.IOStreams) *cobra.Command {
	d := &demo{streams: streams}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Mirror a simulated cluster, kill the mirror, and wake it",
		Long: "Start a simulated API server, mirror its pods to a file and kill the mirror with SIGKILL while\n" +
			"pods change. Change more while it is down, wake it, and show what that cost, beside a\n" +
			"stock client-go informer. The demo fails if the woken cache differs from the server.",
		Example: "  kubewake demo",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.IntVar(&d.objects, "objects", 10_000, "number of pods")
	f.Uint64Var(&d.seed, "seed", 1, "seed of the pods' content")
	f.StringVar(&d.dir, "dir", "", "keep the files in this folder (default: a temporary one, removed at the end)")
	f.StringVarP(&d.output, "output", "o", "", "json; a table by default")
	cmd.AddCommand(newStock(streams))
	return cmd
}

// outcome is the result of the demo.
type outcome struct {
	Pods        int     `json:"pods"`
	JSONBytes   int     `json:"jsonBytes"` // of all pods, as a list
	Compression float64 `json:"compression"`
	File        int64   `json:"fileBytes"`
	Down        changes `json:"whileDown"`
	Kubewake    life    `json:"kubewake"`
	Stock       life    `json:"clientGo"`
}

// changes counts the changes while the mirror was down.
type changes struct{ Added, Updated, Deleted int }

func (d *demo) run(ctx context.Context) error {
	if err := oneOf(d.output, "", "json"); err != nil {
		return err
	}
	if d.objects < 100 {
		return fmt.Errorf("--objects must be at least 100")
	}
	if d.dir == "" {
		dir, release, err := tempDir("kubewake-demo-")
		if err != nil {
			return err
		}
		defer release()
		defer os.RemoveAll(dir)
		d.dir = dir
	} else if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return err
	}
	d.sim = kubesim.New(kubesim.Options{})
	if _, err := d.sim.Start(); err != nil {
		return err
	}
	defer d.sim.Close()
	out := &outcome{Pods: d.objects}
	steps := []struct {
		say string
		do  func(context.Context, *outcome) error
	}{
		{fmt.Sprintf("filling a simulated API server with %d pods", d.objects), d.fill},
		{"mirroring them, killing the mirror while pods change", d.mirrorAndKill},
		{"changing 1 % while it is down", d.changeWhileDown},
		{"waking it", d.wake},
		{"starting a stock client-go informer on the same server", d.stock},
		{"comparing the file with the server", d.compare},
	}
	for _, s := range steps {
		d.progress(s.say)
		if err := s.do(ctx, out); err != nil {
			return fmt.Errorf("%s: %w", s.say, err)
		}
	}
	if d.output == "json" {
		return printJSON(d.streams.Out, out)
	}
	return out.print(d.streams.Out)
}

// progress prints on a terminal only.
func (d *demo) progress(what string) {
	if f, ok := d.streams.ErrOut.(*os.File); ok {
		if st, err := f.Stat(); err == nil && st.Mode()&os.ModeCharDevice != 0 {
			fmt.Fprintf(f, "… %s\n", what)
		}
	}
}

func (d *demo) fill(_ context.Context, out *outcome) error {
	d.gen = podgen.New(d.seed)
	list := &corev1.PodList{}
	for range d.objects {
		p, err := d.add()
		if err != nil {
			return err
		}
		if len(list.Items) < 500 {
			list.Items = append(list.Items, *p)
		}
	}
	b, err := json.Marshal(list)
	if err != nil {
		return err
	}
	var n counter
	z := gzip.NewWriter(&n)
	if _, err := z.Write(b); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	out.JSONBytes, out.Compression = len(b)/len(list.Items)*d.objects, float64(len(b))/float64(n)
	return nil
}

type counter int

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

func (d *demo) add() (*corev1.Pod, error) {
	p := d.gen.Pod(d.next)
	d.next++
	return p, d.sim.Create(p)
}

// change updates the nth pod, if it still exists.
func (d *demo) change(n int) (bool, error) {
	p := d.gen.Pod(n)
	if err := d.sim.Get(p); err != nil {
		return false, nil
	}
	d.gen.Mutate(p, n+d.next)
	return true, d.sim.Update(p)
}

func (d *demo) kubeconfig() (string, error) {
	c := api.NewConfig()
	c.Clusters["demo"] = &api.Cluster{Server: d.sim.URL()}
	c.Contexts["demo"] = &api.Context{Cluster: "demo"}
	c.CurrentContext = "demo"
	path := filepath.Join(d.dir, "kubewake-demo.kubeconfig") // not a name that a user has
	return path, clientcmd.WriteToFile(*c, path)
}

func (d *demo) file() string { return filepath.Join(d.dir, "kubewake-demo.db") }

// mirrorAndKill starts a mirror, waits until it is live and kills it while
// pods change.
func (d *demo) mirrorAndKill(ctx context.Context, _ *outcome) error {
	m, err := d.start(d.mirrorArgs()...)
	if err != nil {
		return err
	}
	defer m.kill()
	if err := m.wait(ctx, nil); err != nil {
		return err
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		pace := time.NewTicker(2 * time.Millisecond)
		defer pace.Stop()
		for n := 0; ; n++ {
			select {
			case <-stop:
				done <- nil
				return
			case <-pace.C:
			}
			if _, err := d.change(n % d.objects); err != nil {
				done <- err
				return
			}
		}
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(500 * time.Millisecond): // in the middle of the changes
	}
	m.kill()
	close(stop)
	return <-done
}

func (d *demo) changeWhileDown(_ context.Context, out *outcome) error {
	n := d.objects / 100
	for i := range n {
		switch {
		case i%4 == 0:
			p := d.gen.Pod(i * 37 % d.objects)
			if d.sim.Get(p) == nil {
				if err := d.sim.Delete(p); err != nil {
					return err
				}
				out.Down.Deleted++
			}
		case i%4 == 1:
			if _, err := d.add(); err != nil {
				return err
			}
			out.Down.Added++
		default:
			ok, err := d.change((i*37 + 11) % d.objects)
			if err != nil {
				return err
			}
			if ok {
				out.Down.Updated++
			}
		}
	}
	return nil
}

func (o *outcome) print(to io.Writer) error {
	w := &noting{w: to}
	fmt.Fprintf(w, "%d pods, %.1f KB of JSON each; gzip makes 500 of them %.1f times smaller. The file has %s.\n",
		o.Pods, float64(o.JSONBytes)/float64(o.Pods)/1000, o.Compression, size(o.File))
	fmt.Fprintf(w, "The mirror was killed (SIGKILL) while pods changed. While it was down %d were added, %d changed, %d deleted.\n\n",
		o.Down.Added, o.Down.Updated, o.Down.Deleted)
	row := func(name, a, b string) { fmt.Fprintf(w, "%-34s%14s%14s\n", name, a, b) }
	row("The same restart", "kubewake", "client-go")
	row(strings.Repeat("-", 34), strings.Repeat("-", 10), strings.Repeat("-", 10))
	ms := func(v float64) string { return fmt.Sprintf("%.0f ms", v) }
	row("process start to first read", ms(o.Kubewake.FirstRead), ms(o.Stock.FirstRead))
	row("            to all objects told", ms(o.Kubewake.Replayed), ms(o.Stock.Replayed))
	row("            to synced, confirmed", ms(o.Kubewake.Synced), ms(o.Stock.Synced))
	row("requests", fmt.Sprint(o.Kubewake.Requests), fmt.Sprint(o.Stock.Requests))
	row("response bodies", size(o.Kubewake.Bytes), size(o.Stock.Bytes))
	row("adds told", fmt.Sprint(o.Kubewake.Added), fmt.Sprint(o.Stock.Added))
	row("updates told", fmt.Sprint(o.Kubewake.Updated), fmt.Sprint(o.Stock.Updated))
	row("deletes told", fmt.Sprint(o.Kubewake.Deleted), fmt.Sprint(o.Stock.Deleted))
	fmt.Fprintf(w, "\nThe woken cache equals the server, object by object.\n")
	return w.err
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
