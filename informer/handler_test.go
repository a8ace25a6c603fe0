package informer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestToldAgain: what the handler has not returned from before the end is told
// in the next life, deletes included.
func TestToldAgain(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.create("b")
	block := make(chan struct{})
	r := newRecorder(t)
	stuck := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { r.OnAdd(obj, true) },
		DeleteFunc: func(any) { <-block }, // and forgets it
	}
	l := w.live(Options{}, stuck).run().synced().equal()
	r.expect("initial a", "initial b")
	w.delete("a")
	w.delete("b")
	l.equal() // stored, and never told
	l.cancel()
	eventually(t, "the listener is told to stop", func() bool {
		l.inf.mu.Lock()
		defer l.inf.mu.Unlock()
		for h := range l.inf.listeners {
			if h.gone.Err() != nil {
				return true
			}
		}
		return false
	})
	close(block)
	l.end()
	w.live(Options{}, r).run().synced()
	eventually(t, "the second delete is told", func() bool { return !slices.Contains(r.names(), "b") })
}

// TestSlowHandler: neither the watch nor another handler waits for it, and it
// gets everything in order, from the file.
func TestSlowHandler(t *testing.T) {
	w := newWorld(t)
	w.create("x")
	release := make(chan struct{})
	var seen []string
	slow := cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, obj any) {
		<-release
		seen = append(seen, obj.(*corev1.ConfigMap).Data["data"])
	}}
	r := newRecorder(t)
	l := w.live(Options{backlogBytes: 1000}, slow, r).run().synced().equal().replayed()
	for i := range 300 {
		w.update("x", fmt.Sprint(i))
	}
	l.equal()
	eventually(t, "the other handler is told", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.there["x"].Data["data"] == "299"
	})
	close(release)
	eventually(t, "the slow handler is told", func() bool {
		return l.inf.Store().State().Told == l.inf.Store().State().Seq || len(l.inf.listeners) == 0 || allTold(l)
	})
	l.end()
	for i, d := range seen {
		if d != fmt.Sprint(i) {
			t.Fatalf("update %d is %s", i, d)
		}
	}
	if len(seen) != 300 {
		t.Fatalf("%d updates told", len(seen))
	}
}

func allTold(l *life) bool {
	l.inf.mu.Lock()
	defer l.inf.mu.Unlock()
	for h := range l.inf.listeners {
		if h.cursor.Load() < l.inf.backlog.Last() {
			return false
		}
	}
	return true
}

func TestHandlersComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	early, late := newRecorder(t), newRecorder(t)
	l := w.live(Options{}, early).run().synced()
	early.expect("initial a")
	w.create("b")
	w.create("c")
	w.delete("c")
	early.expect("add b", "add c", "delete c")
	reg, err := l.inf.AddEventHandler(late)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "late handler synced", reg.HasSynced)
	late.expect("initial a", "initial b")
	if err := cache.ShutDownEventHandler(l.inf, reg); err != nil {
		t.Fatal(err)
	}
	if err := l.inf.RemoveEventHandler(reg); err != nil {
		t.Fatal("removing twice:", err)
	}
	w.create("d")
	early.expect("add d")
	late.expect()
	if err := l.inf.AddIndexers(cache.Indexers{"data": func(o any) ([]string, error) { return []string{o.(*corev1.ConfigMap).Data["data"]}, nil }}); err != nil {
		t.Fatal(err)
	}
	if got, err := l.inf.GetIndexer().IndexKeys("data", ""); err != nil || len(got) != 3 {
		t.Fatal(got, err)
	}
	if err := l.inf.SetTransform(nil); err == nil {
		t.Error("a transform was set after the start")
	}
	l.end()
	if _, err := l.inf.AddEventHandler(late); err == nil {
		t.Error("a handler was added after the end")
	}
	if !l.inf.IsStopped() {
		t.Error("not stopped")
	}
}

func TestResync(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.create("b")
	l := w.live(Options{ResyncPeriod: time.Hour})
	wants, not := newRecorder(t), newRecorder(t)
	if _, err := l.inf.AddEventHandlerWithResyncPeriod(wants, time.Second); err != nil {
		t.Fatal(err)
	}
	if _, err := l.inf.AddEventHandlerWithResyncPeriod(not, 0); err != nil {
		t.Fatal(err)
	}
	l.run().synced()
	wants.expect("initial a", "initial b", "resync a", "resync b")
	not.expect("initial a", "initial b")
}

type foreignHandle struct {
	cache.ResourceEventHandlerRegistration
}

// TestHandlesAsClientGo: what RemoveEventHandler answers to handles of all
// kinds is what client-go's informer answers.
func TestHandlesAsClientGo(t *testing.T) {
	w := newWorld(t)
	other := newWorld(t)
	ours := func(w *world) cache.SharedIndexInformer { return w.live(Options{}).run().synced().inf }
	stock := func(w *world) cache.SharedIndexInformer {
		return cache.NewSharedIndexInformer(listWatch(w.config()), &corev1.ConfigMap{}, 0, cache.Indexers{})
	}
	answers := func(mine, another cache.SharedIndexInformer) map[string]bool {
		a := map[string]bool{}
		handle := func(inf cache.SharedIndexInformer) cache.ResourceEventHandlerRegistration {
			reg, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{})
			if err != nil {
				t.Fatal(err)
			}
			return reg
		}
		a["before there is a handler"] = mine.RemoveEventHandler(handle(another)) == nil
		own := handle(mine)
		a["another informer's"] = mine.RemoveEventHandler(handle(another)) == nil
		a["its own"] = mine.RemoveEventHandler(own) == nil
		a["its own, twice"] = mine.RemoveEventHandler(own) == nil
		a["nil"] = mine.RemoveEventHandler(nil) == nil
		a["of another type"] = mine.RemoveEventHandler(foreignHandle{}) == nil
		return a
	}
	got, want := answers(ours(w), ours(other)), answers(stock(w), stock(other))
	for name, ok := range want {
		if got[name] != ok {
			t.Errorf("%s: no error: %v, client-go %v", name, got[name], ok)
		}
	}
}
