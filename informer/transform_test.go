package informer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/reflector"
)

// TestTransformInPlace: a transform has the objects of the watch to itself, even while
// the source catches up. Otherwise the race detector would report it, and with
// unstructured objects Go would end the program.
func TestTransformInPlace(t *testing.T) {
	w := newWorld(t)
	w.create("o")
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	o := Options{TransformVersion: "1", Transform: func(obj any) (any, error) {
		for i := range 20 {
			obj.(metav1.Object).SetAnnotations(map[string]string{"seen": fmt.Sprint(i)})
		}
		return obj, nil
	}}
	for life := range 3 {
		m := w.managed()
		dyn := dynamic.NewForConfigOrDie(w.config()).Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
		inf, err := NewSharedIndexInformer(m.db, like(dyn.List, dyn.Watch), u, o)
		if err != nil {
			t.Fatal(err)
		}
		end := start(t, inf)
		eventually(t, "synced", inf.HasSynced)
		if n := len(inf.GetStore().List()); n != 1+30*life {
			t.Errorf("life %d: %d objects", life, n)
		}
		end()
		if err := m.db.Close(); err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			w.create(fmt.Sprint("o", life, "-", i))
		}
	}
}

// TestTransformOfTheName: a transform may change the name by which objects are known. A
// relist deletes only the objects that are gone.
func TestTransformOfTheName(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a", "b", "c"} {
		w.create(name)
	}
	h := newRecorder(t)
	o := Options{TransformVersion: "1", Transform: func(obj any) (any, error) {
		if o := obj.(*corev1.ConfigMap); o.Namespace != "" { // client-go's informer transforms listed objects twice
			o.Name, o.Namespace = o.Namespace+"-"+o.Name, ""
		}
		return obj, nil
	}}
	w.live(o, h).run().synced().replayed().end()
	h.expect("initial default-a", "initial default-b", "initial default-c")
	w.delete("a")
	w.sim.Compact()
	l := w.live(o, h).run().synced().replayed()
	left := func(names ...string) {
		t.Helper()
		eventually(t, fmt.Sprint(names), func() bool { return slices.Equal(h.names(), names) })
		told := h.take()
		for _, deleted := range []string{"missed default-b", "missed default-c"} {
			if slices.Contains(told, deleted) {
				t.Error(deleted)
			}
		}
	}
	left("default-b", "default-c")
	eventually(t, "a relist", func() bool { return l.inf.State().Relists[reflector.ReasonExpired] == 1 })
	for _, key := range []string{"default-b", "default-c"} {
		if _, there, err := l.inf.GetStore().GetByKey(key); !there || err != nil {
			t.Error(key, there, err)
		}
	}
	w.delete("c")
	left("default-b")
	l.end()
}

// TestRefusedUnderAnotherName: an object that the server has is not deleted, and one that
// it has deleted is, although the transform, which changes the name, fails for a while.
func TestRefusedUnderAnotherName(t *testing.T) {
	for _, how := range []string{"relist", "another transform", "delete", "update, then delete"} {
		t.Run(how, func(t *testing.T) {
			w := newWorld(t)
			w.create("a")
			w.create("b")
			h, f := newRecorder(t), &faults{}
			o := f.options()
			o.Transform = func(obj any) (any, error) {
				o := obj.(*corev1.ConfigMap)
				if err := f.fails(&f.transform, obj); err != nil {
					return nil, err
				}
				if o.Namespace != "" {
					o.Name, o.Namespace = o.Namespace+"-"+o.Name, ""
				}
				return obj, nil
			}
			retry := time.Millisecond
			if how == "update, then delete" {
				retry = time.Second / 2 // no list comes in between
			}
			o.Reflector = tuned(tuning.Reflector{RetryUnstored: retry})
			l := w.live(o, h).run().synced().replayed()
			h.expect("initial default-a", "initial default-b")
			f.name.Store("a")
			want := []string{"default-a", "default-b"}
			switch how {
			case "relist", "another transform":
				l.end()
				w.update("b", "2")
				w.sim.Compact()
				if how != "relist" {
					o.TransformVersion = "2"
				}
				f.transform.Store(true)
				l = w.live(o, h).run()
				eventually(t, "listed", func() bool { return l.inf.State().Relists[reflector.ReasonUnstored] > 2 })
			case "delete", "update, then delete":
				f.transform.Store(true)
				if how != "delete" {
					w.update("a", "2")
					l.passed()
				}
				w.delete("a")
				l.passed()
				want = want[1:]
			}
			told := h.take()
			f.transform.Store(false)
			eventually(t, fmt.Sprint(want), func() bool {
				return slices.Equal(h.names(), want) && len(l.inf.GetStore().ListKeys()) == len(want) &&
					l.inf.HasSynced()
			})
			if told = append(told, h.take()...); len(want) == 2 && slices.Contains(told, "missed default-a") {
				t.Error("told that it is gone:", told)
			}
			l.end()
		})
	}
}
