package informer

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestToldAgain: calls that have not returned before the end are made again in the next
// life, deletes included.
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
