package main

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/podgen"
)

type demo struct {
	objects int
	file    string
	sim     *kubesim.Server
	gen     *podgen.Generator
	next    int // number of the next new pod

	jsonBytes   float64 // of a pod
	compression float64
	fileSize    int64
	down        struct{ added, updated, deleted int } // while the program was down
	kept, stock life
}

func newDemo(objects int, dir string) (*demo, error) {
	d := &demo{objects: objects, file: filepath.Join(dir, "cache.db"), sim: kubesim.New(kubesim.Options{}),
		gen: podgen.New(1)}
	_, err := d.sim.Start()
	return d, err
}

func (d *demo) fill(context.Context) error {
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
	d.jsonBytes = float64(len(b)) / float64(len(list.Items))
	err = z.Close()
	d.compression = float64(len(b)) / float64(n)
	return err
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

// keepAndKill starts the program, waits until it has synced, and kills it while pods change.
func (d *demo) keepAndKill(ctx context.Context) error {
	c, err := d.start(ctx, d.file)
	if err != nil {
		return err
	}
	defer c.kill()
	if err := c.read(&life{}); err != nil {
		return err
	}
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for n := range 250 {
		if _, err := d.change(n % d.objects); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-pace.C:
		}
	}
	return nil
}

func (d *demo) changeWhileDown(context.Context) error {
	for i := range d.objects / 100 {
		n := i*37%d.objects + i%4
		switch i % 4 {
		case 0:
			if p := d.gen.Pod(n); d.sim.Get(p) == nil {
				if err := d.sim.Delete(p); err != nil {
					return err
				}
				d.down.deleted++
			}
		case 1:
			if _, err := d.add(); err != nil {
				return err
			}
			d.down.added++
		default:
			changed, err := d.change(n)
			if err != nil {
				return err
			}
			if changed {
				d.down.updated++
			}
		}
	}
	return nil
}

// child is a process that the demo has started.
type child struct {
	*exec.Cmd
	out io.Reader
}

func (d *demo) start(ctx context.Context, file string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{Cmd: exec.CommandContext(ctx, exe)}
	c.Stderr = os.Stderr
	c.Env = append(os.Environ(), envServer+"="+d.sim.URL(), envFile+"="+file,
		envStarted+"="+time.Now().Format(time.RFC3339Nano))
	if c.out, err = c.StdoutPipe(); err != nil {
		return nil, err
	}
	return c, c.Start()
}

// read reads the line that the child prints once it has synced.
func (c *child) read(l *life) error {
	line, err := bufio.NewReader(c.out).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the child ended: %w", errors.Join(err, c.Wait()))
	}
	return json.Unmarshal(line, l)
}

func (c *child) kill() {
	_ = c.Process.Kill()
	_ = c.Wait() // its exit is the kill
}

// time runs a child until it has synced, and counts its requests.
func (d *demo) time(ctx context.Context, l *life, file string) error {
	d.sim.ResetRequests()
	c, err := d.start(ctx, file)
	if err != nil {
		return err
	}
	if err := c.read(l); err != nil {
		return err
	}
	for _, r := range d.sim.Requests() {
		l.requests++
		l.bytes += r.BodyBytes
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil { // not on all systems
		c.kill()
		return nil
	}
	return c.Wait()
}

// compare compares the file with the server, object by object.
func (d *demo) compare(context.Context) (err error) {
	db, err := boltstore.Open(d.file, boltstore.Options{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	d.fileSize = db.Size()
	s, err := db.View(boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped})
	if err != nil {
		return err
	}
	server, _, err := d.sim.List(&corev1.Pod{})
	if err != nil {
		return err
	}
	if n := len(s.ListKeys()); n != len(server) {
		return fmt.Errorf("the woken cache has %d pods, the server %d", n, len(server))
	}
	for _, obj := range server {
		p := obj.(*corev1.Pod)
		p.TypeMeta = metav1.TypeMeta{} // typed clients do not fill it
		key, err := cache.MetaNamespaceKeyFunc(p)
		if err != nil {
			return err
		}
		kept, _, err := s.GetByKey(key)
		if err != nil {
			return err
		}
		if !apiequality.Semantic.DeepEqual(kept, obj) {
			return fmt.Errorf("the woken cache differs from the server at %s", key)
		}
	}
	return nil
}
