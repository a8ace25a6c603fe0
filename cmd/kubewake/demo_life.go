package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// life has the times of one life of a process, in milliseconds since its start, and the
// number of events that its handler was told.
type life struct {
	FirstRead float64 `json:"firstReadMs"`
	Replayed  float64 `json:"replayedMs"`
	Synced    float64 `json:"syncedMs"`
	Requests  int     `json:"requests"`
	Bytes     int64   `json:"bytes"`
	Added     int64   `json:"added"`
	Updated   int64   `json:"updated"`
	Deleted   int64   `json:"deleted"`
}

// envStarted has the time at which a child was started.
const envStarted = "KUBEWAKE_DEMO_STARTED"

// sinceStart is the time since this process was started, in milliseconds.
func sinceStart() float64 { return sinceStartAt(time.Now()) }

func sinceStartAt(t time.Time) float64 {
	ns, err := strconv.ParseInt(os.Getenv(envStarted), 10, 64)
	if err != nil {
		return 0 // not started by the demo
	}
	return float64(t.Sub(time.Unix(0, ns)).Microseconds()) / 1000
}

// newStock is a program that watches pods with client-go's own informer. It prints a
// line of JSON when it has synced, and runs until it is interrupted.
func newStock(streams genericiooptions.IOStreams) *cobra.Command {
	var kubeconfig string
	cmd := &cobra.Command{
		Use:    "stock",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return stock(cmd.Context(), streams, kubeconfig)
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "")
	return cmd
}

func stock(ctx context.Context, streams genericiooptions.IOStreams, kubeconfig string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS, cfg.UserAgent = -1, stockAgent
	lw, example, err := listWatch(cfg, resource{gvr: corev1.SchemeGroupVersion.WithResource("pods"), gvk: corev1.SchemeGroupVersion.WithKind("Pod")}, "", "")
	if err != nil {
		return err
	}
	inf := cache.NewSharedIndexInformer(lw, example, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	src := &source{}
	handler, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { src.told("ADDED") },
		UpdateFunc: func(_, _ any) { src.told("MODIFIED") },
		DeleteFunc: func(any) { src.told("DELETED") },
	})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { inf.RunWithContext(ctx) })
	if !cache.WaitFor(ctx, "", handler.HasSyncedChecker()) {
		return ctx.Err()
	}
	t := sinceStart()
	err = json.NewEncoder(streams.Out).Encode(life{FirstRead: t, Replayed: t, Synced: t,
		Added: src.added.Load(), Updated: src.modified.Load(), Deleted: src.deleted.Load()})
	<-ctx.Done()
	return err
}

// child is a process that the demo started.
type child struct {
	cmd  *exec.Cmd
	out  *bufio.Scanner
	errs strings.Builder
}

func (d *demo) start(args ...string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	kubeconfig, err := d.kubeconfig()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command(exe, append(args, "--kubeconfig", kubeconfig)...)}
	c.cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", envStarted, time.Now().UnixNano()))
	c.cmd.Stderr = &c.errs
	pipe, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.out = bufio.NewScanner(pipe)
	return c, c.cmd.Start()
}

// wait reads a line of JSON from the child.
func (c *child) wait(ctx context.Context, into any) error {
	stop := context.AfterFunc(ctx, c.kill)
	defer stop()
	if !c.out.Scan() {
		c.kill()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("the child ended: %s", strings.TrimSpace(c.errs.String()))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(c.out.Bytes(), into)
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait() // its exit is the kill
}

// end asks the child to end in order. On systems where it cannot ask, it kills the
// child.
func (c *child) end() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.kill()
		return nil
	}
	return c.cmd.Wait()
}

func (d *demo) mirrorArgs() []string {
	return []string{"mirror", "pods", "-A", "--report", "--db", d.file()}
}

func (d *demo) wake(ctx context.Context, out *outcome) error {
	return d.time(ctx, &out.Kubewake, "kubewake/", d.mirrorArgs()...)
}

const stockAgent = "client-go"

func (d *demo) stock(ctx context.Context, out *outcome) error {
	return d.time(ctx, &out.Stock, stockAgent, "demo", "stock")
}

// time runs a child until it has synced, and counts its requests.
func (d *demo) time(ctx context.Context, l *life, userAgent string, args ...string) error {
	d.sim.ResetRequests()
	c, err := d.start(args...)
	if err != nil {
		return err
	}
	if err := c.wait(ctx, l); err != nil {
		return err
	}
	for _, r := range d.sim.Requests() {
		if strings.HasPrefix(r.UserAgent, userAgent) {
			l.Requests++
			l.Bytes += r.BodyBytes
		}
	}
	return c.end()
}

// compare compares the file with the server, object by object, as JSON.
func (d *demo) compare(_ context.Context, out *outcome) error {
	db, err := boltstore.Open(d.file(), boltstore.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer db.Close()
	out.File = db.Size()
	s, err := db.View(boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped})
	if err != nil {
		return err
	}
	cached, err := s.ListErr()
	if err != nil {
		return err
	}
	byKey := map[string]any{}
	for _, obj := range cached {
		key, err := cache.MetaNamespaceKeyFunc(obj)
		if err != nil {
			return err
		}
		byKey[key] = obj
	}
	server, _, err := d.sim.List(&corev1.Pod{})
	if err != nil {
		return err
	}
	for _, obj := range server {
		key, err := cache.MetaNamespaceKeyFunc(obj)
		if err != nil {
			return err
		}
		if same, err := sameJSON(obj, byKey[key]); err != nil || !same {
			return errors.Join(err, fmt.Errorf("the woken cache differs from the server at %s", key))
		}
		delete(byKey, key)
	}
	if len(byKey) > 0 {
		return fmt.Errorf("the woken cache has %d objects that the server does not have", len(byKey))
	}
	return nil
}

func sameJSON(server kubesim.Object, cached any) (bool, error) {
	server.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // typed clients do not fill it
	a, err := json.Marshal(server)
	if err != nil {
		return false, err
	}
	b, err := json.Marshal(cached)
	if err != nil {
		return false, err
	}
	var x, y any
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		return false, err
	}
	return reflect.DeepEqual(x, y), nil
}
