package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// formed is the options of a program whose transform takes the data away and leaves its
// version.
func formed(version string) Options {
	return Options{TransformVersion: version, Transform: func(obj any) (any, error) {
		obj.(*corev1.ConfigMap).Data = map[string]string{"form": version}
		return obj, nil
	}}
}

// objectsOf returns all objects of an event.
func objectsOf(e Event) map[string]any {
	all := map[string]any{"object": e.Object, "old object": e.Old}
	for i, g := range e.Deleted {
		obj := g.Object
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		all[fmt.Sprint("deleted object ", i)] = obj
	}
	return all
}

// hidden looks at all objects of an event. It says which has another form.
func hidden(e Event, version string) (what string) {
	for what, obj := range objectsOf(e) {
		if o, ok := obj.(*corev1.ConfigMap); ok && (len(o.Data) != 1 || o.Data["form"] != version) {
			return fmt.Sprintf("%s: the %s has %v", e.Key, what, o.Data)
		}
	}
	return ""
}

// TestDurableAfterAnotherTransform: what a durable handler has not acknowledged is told
// in the form of the present transform, and so are changes that were missed, once the objects
// have been read again.
func TestDurableAfterAnotherTransform(t *testing.T) {
	for name, o := range map[string]DurableOptions{"": {}, "more workers": {Workers: 3}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for _, n := range []string{"changes", "goes", "returns", "leaves", "is missed", "rests", "f", "g", "h"} {
				w.create(n, "secret")
			}
			r := newLedger(t)
			begin := func(form Options) *life {
				l := w.live(form)
				if _, err := l.inf.AddDurableHandler("test", r, o); err != nil {
					t.Fatal(err)
				}
				return l.run()
			}
			refuse := func(refuse bool) {
				if err := w.sim.RefuseConnections(refuse); err != nil {
					t.Fatal(err)
				}
			}
			l := begin(Options{}).synced().equal().acknowledged()
			r.take()
			r.answers(func(Event) error { return ErrAckLater })
			for _, n := range []string{"changes", "f", "g", "h"} {
				w.update(n, "secret 2")
			}
			w.delete("goes")
			w.delete("returns")
			r.expect("update changes", "update f", "update g", "update h", "delete goes", "delete returns")
			w.create("returns", "secret 2")
			r.expect("delete returns", "add returns") // the delete was not acknowledged
			r.taken()
			l.end()
			w.update("is missed", "secret 3")
			w.delete("leaves")
			refuse(true)

			r.answers(func(e Event) error {
				if what := hidden(e, "2"); what != "" {
					t.Error(what)
				}
				return nil
			})
			l = begin(formed("2"))
			refuse(false)
			l.synced().acknowledged()
			again := map[string]int{}
			for _, what := range r.take() {
				again[what]++
			}
			for _, what := range []string{"update changes", "update f", "add returns", "missed leaves", "delete goes",
				"delete returns"} {
				if again[what] == 0 {
					t.Errorf("not told: %s, of %v", what, again)
				}
			}
			if again["update is missed"] == 0 {
				t.Errorf("not told of a change: %v", again)
			}
			l.end()
			l = begin(formed("2")).synced().acknowledged()
			if got := r.take(); len(got) > 0 {
				t.Errorf("told again what was acknowledged: %q", got)
			}
			l.end()
		})
	}
}

// TestPlainAfterAnotherTransform: plain handlers are told deletes and old objects in the
// form of the present transform, too. If it fails on the last known state of an object,
// the delete is told with an object that has a name and nothing else.
func TestPlainAfterAnotherTransform(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		w := newWorld(t)
		for _, n := range []string{"a", "b", "c", "d"} {
			w.create(n, "secret")
		}
		first := newRecorder(t)
		l := w.live(Options{}, first).run().synced().replayed()
		if err := l.inf.RemoveEventHandler(handle(l.inf)); err != nil {
			t.Fatal(err)
		}
		w.delete("a") // nobody is told in this life
		l.equal().end()
		w.delete("b")

		o := formed("2")
		if inner := o.Transform; refuses {
			o.Transform = func(obj any) (any, error) {
				if obj.(*corev1.ConfigMap).Name != "c" {
					return nil, errors.New("an older form")
				}
				return inner(obj)
			}
		}
		var mu sync.Mutex
		told := map[string]string{}
		look := func(what string, obj any) {
			mu.Lock()
			defer mu.Unlock()
			key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
			if err != nil {
				t.Error(err)
			}
			if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = d.Obj
			}
			data := "no object"
			if o, ok := obj.(*corev1.ConfigMap); ok {
				data = fmt.Sprint(o.Data)
				if name := o.Namespace + "/" + o.Name; name != key {
					t.Errorf("%s is told with an object %s", key, name)
				}
			}
			told[what+" "+key] = data
		}
		l = w.live(o, cache.ResourceEventHandlerFuncs{
			AddFunc:    func(obj any) { look("add", obj) },
			UpdateFunc: func(old, obj any) { look("old", old); look("update", obj) },
			DeleteFunc: func(obj any) { look("delete", obj) },
		}).run()
		if refuses { // the file has a note of it, with its earlier state
			eventually(t, "noted", func() bool { return l.inf.Store().State().Unstored == 1 })
			w.delete("d")
		}
		l.synced().replayed()
		w.delete("c")
		eventually(t, "told", func() bool { mu.Lock(); defer mu.Unlock(); return told["delete default/c"] != "" })
		l.end()
		form := "map[form:2]"
		want := map[string]string{"delete default/a": form, "delete default/b": form, "add default/c": form,
			"delete default/c": form}
		if refuses {
			for _, n := range []string{"a", "b", "d"} {
				want["delete default/"+n] = "map[]"
			}
		} else {
			want["add default/d"] = form
		}
		if !maps.Equal(told, want) {
			t.Errorf("refuses: %t: told %v", refuses, told)
		}
	}
}

// handle is the registration of the informer's only plain handler.
func handle(inf *Informer) cache.ResourceEventHandlerRegistration {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	for l := range inf.listeners {
		return l
	}
	return nil
}

// TestFailingUnderTheSameForm: what another transform leaves as it was is not outdated, so
// keys that fail do not have acknowledged objects told again.
func TestFailingUnderTheSameForm(t *testing.T) {
	w := newWorld(t)
	for i := range 40 {
		w.create(fmt.Sprint("bad", i))
	}
	w.create("good")
	same := func(version string) Options {
		return Options{TransformVersion: version, Transform: func(obj any) (any, error) { return obj, nil }}
	}
	w.live(same("1")).run().synced().equal().end()
	var mu sync.Mutex
	told := map[string]int{}
	handler := DurableHandlerFunc(func(_ context.Context, e Event) error {
		mu.Lock()
		defer mu.Unlock()
		if told[e.Key]++; e.Key == "default/good" || e.Reset {
			return nil
		}
		return errors.New("no")
	})
	l := w.live(same("2")).run().synced()
	if _, err := l.inf.AddDurableHandler("test", handler, DurableOptions{
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond,
			20*time.Millisecond)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "each key is told often", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for i := range 40 {
			if told[fmt.Sprint("default/bad", i)] < 8 {
				return false
			}
		}
		return true
	})
	l.end()
	if n := told["default/good"]; n != 1 {
		t.Errorf("an acknowledged object was told %d times", n)
	}
}

// TestNameOfAnotherTransform: a delete, and the object before a change, have the name by
// which handlers know the object, even if the present transform gives it another one.
func TestNameOfAnotherTransform(t *testing.T) {
	renamed := func(version string) Options {
		return Options{TransformVersion: version, Transform: func(obj any) (any, error) {
			o := obj.(*corev1.ConfigMap)
			o.Name = version + o.Name[strings.LastIndex(o.Name, "-"):]
			return obj, nil
		}}
	}
	w := newWorld(t)
	for _, n := range []string{"x-told", "x-untold", "x-missed", "x-stays"} {
		w.create(n)
	}
	plain, durable := newRecorder(t), newLedger(t)
	begin := func(version string) *life {
		l := w.live(renamed(version), plain)
		if _, err := l.inf.AddDurableHandler("test", durable, DurableOptions{}); err != nil {
			t.Fatal(err)
		}
		return l.run().synced().replayed().acknowledged()
	}
	l := begin("one")
	w.delete("x-told")
	eventually(t, "told", func() bool { return len(plain.names()) == 3 && len(durable.names()) == 3 })
	l.acknowledged()
	if err := l.inf.RemoveEventHandler(handle(l.inf)); err != nil {
		t.Fatal(err)
	}
	durable.answers(func(Event) error { return ErrAckLater })
	w.delete("x-untold")
	eventually(t, "told", func() bool { return len(durable.names()) == 2 })
	l.end()
	w.delete("x-missed")
	durable.answers(nil)
	plain.take()
	durable.take()

	l = begin("two")
	for what, h := range map[string]*recorder{"plain": plain, "durable": durable.recorder} {
		eventually(t, "the "+what+" handler knows what stays", func() bool {
			return slices.Equal(h.names(), []string{"two-stays"})
		})
	}
	l.end()
}
