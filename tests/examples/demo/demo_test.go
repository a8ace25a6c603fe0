package main

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore"
)

// TestDifferencesAreNoticed: the demo's last step passes on a file that equals the server, and
// fails once the server has changed, lost or gained a pod. tests/readme runs the whole demo.
func TestDifferencesAreNoticed(t *testing.T) {
	for name, change := range map[string]func(d *demo) error{
		"same":    nil,
		"changed": func(d *demo) error { _, err := d.change(3); return err },
		"lost":    func(d *demo) error { return d.sim.Delete(d.gen.Pod(3)) },
		"gained":  func(d *demo) error { _, err := d.add(); return err },
	} {
		t.Run(name, func(t *testing.T) {
			d, err := newDemo(5, t.TempDir())
			must(t, err)
			defer d.sim.Close()
			must(t, d.fill(t.Context()))
			d.store(t)
			if change != nil {
				must(t, change(d))
			}
			if err := d.compare(t.Context()); (err != nil) != (change != nil) {
				t.Fatal(err)
			}
		})
	}
}

// store writes the server's pods into the file.
func (d *demo) store(t *testing.T) {
	t.Helper()
	db, err := boltstore.Open(d.file, boltstore.Options{})
	must(t, err)
	src := boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped}
	s, err := db.Claim(boltstore.Claim{Source: src, Example: &corev1.Pod{}})
	must(t, err)
	r, err := s.Upstream.BeginRelist(boltstore.RelistOptions{
		OnError: func(_ runtime.Object, err error) { t.Error(err) }})
	must(t, err)
	objs, _, err := d.sim.List(&corev1.Pod{})
	must(t, err)
	var page []runtime.Object
	for _, o := range objs {
		p := o.(*corev1.Pod)
		p.TypeMeta = metav1.TypeMeta{} // as typed clients leave it
		page = append(page, p)
	}
	must(t, r.Page(page))
	_, err = r.Commit("9", time.Now())
	must(t, err)
	must(t, db.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
