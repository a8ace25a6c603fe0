package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// TestDurableStuck: keys that are stuck do not hold up others, however many.
func TestDurableStuck(t *testing.T) {
	w := newWorld(t)
	r := newLedger(t)
	var mu sync.Mutex
	stuck := true
	r.answers(func(e Event) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !stuck || e.Object.(*corev1.ConfigMap).Data["data"] == "good":
			return nil
		case e.Seq%2 == 0:
			return errors.New("no")
		}
		return ErrAckLater
	})
	o := DurableOptions{MaxPending: 4, StuckAfter: 1}
	l := w.durably(o, r).run().synced().replayed()
	for i := range 40 {
		w.create(fmt.Sprint("bad", i))
	}
	w.create("good", "good")
	eventually(t, "good is told", func() bool { return slices.Contains(r.names(), "good") })
	l.end()
	if hs := handlersOf(t, w.path); hs[0].Parked < 30 {
		t.Errorf("%+v", hs[0])
	}
	mu.Lock()
	stuck = false
	mu.Unlock()
	r.taken()
	w.durably(o, r).run().synced().acknowledged().end()
	told := map[string]bool{}
	for _, e := range r.taken() {
		told[e.Key] = true
	}
	if len(told) < 40 {
		t.Errorf("%d of 40 keys were told", len(told))
	}
	if hs := handlersOf(t, w.path); hs[0].Parked != 0 || hs[0].Entries != 0 {
		t.Errorf("%+v", hs[0])
	}
}

// TestParkedInitial: an object of the first list that was moved to the file
// before it was acknowledged is told by the next life.
func TestParkedInitial(t *testing.T) {
	w := newWorld(t)
	w.options.FlushInterval = 5 * time.Millisecond
	for i := range 8 {
		w.create(fmt.Sprint("o", i), "one")
	}
	o := DurableOptions{MaxPending: 2, RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)}
	l := w.live(Options{})
	failing := DurableHandlerFunc(func(context.Context, Event) error { return errors.New("not now") })
	if _, err := l.inf.AddDurableHandler("parked", failing, o); err != nil {
		t.Fatal(err)
	}
	l.run().synced()
	eventually(t, "moved to the file", func() bool {
		hs, err := l.inf.store.Handlers()
		return err == nil && len(hs) == 1 && hs[0].Parked >= 7
	})
	l.end()

	var mu sync.Mutex
	told := map[string]bool{}
	l = w.live(Options{})
	if _, err := l.inf.AddDurableHandler("parked", DurableHandlerFunc(func(_ context.Context, e Event) error {
		mu.Lock()
		defer mu.Unlock()
		told[e.Key] = e.Type == cache.Added
		return nil
	}), DurableOptions{}); err != nil {
		t.Fatal(err)
	}
	l.run()
	eventually(t, "all are told", func() bool { mu.Lock(); defer mu.Unlock(); return len(told) == 8 })
	l.end()
}
