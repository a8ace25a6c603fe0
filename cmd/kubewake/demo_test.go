package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/podgen"
)

// TestDemoNoticesDifferences: the demo's last step passes on a file that equals
// the server, and fails once the server has changed, lost or gained a pod.
func TestDemoNoticesDifferences(t *testing.T) {
	for name, change := range map[string]func(d *demo) error{
		"same":    nil,
		"changed": func(d *demo) error { _, err := d.change(3); return err },
		"lost":    func(d *demo) error { return d.sim.Delete(d.gen.Pod(3)) },
		"gained":  func(d *demo) error { _, err := d.add(); return err },
	} {
		t.Run(name, func(t *testing.T) {
			d := &demo{dir: t.TempDir(), sim: kubesim.New(kubesim.Options{}), gen: podgen.New(1)}
			for range 5 {
				if _, err := d.add(); err != nil {
					t.Fatal(err)
				}
			}
			d.store(t)
			if change != nil {
				if err := change(d); err != nil {
					t.Fatal(err)
				}
			}
			if err := d.compare(t.Context(), &outcome{}); (err != nil) != (change != nil) {
				t.Fatal(err)
			}
		})
	}
}

// TestDemoOnFullDisk: the demo fails if its result cannot be written.
func TestDemoOnFullDisk(t *testing.T) {
	if err := (&outcome{Pods: 1}).print(&fullWriter{}); err == nil {
		t.Error("nothing was written, and nothing said")
	}
}

// store writes the server's pods into the file.
func (d *demo) store(t *testing.T) {
	t.Helper()
	db, err := boltstore.Open(d.file(), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped}, Example: &corev1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.BeginRelist(boltstore.RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	objs, _, err := d.sim.List(&corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	var page []runtime.Object
	for _, o := range objs {
		p := o.(*corev1.Pod)
		p.TypeMeta = metav1.TypeMeta{} // as typed clients leave it
		page = append(page, p)
	}
	if err := r.Page(page); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit("9", time.Now()); err != nil {
		t.Fatal(err)
	}
	s.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
