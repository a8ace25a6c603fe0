package informer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// TestNackWhileReady: a key of which the file alone has what was told gets a new
// event, and is refused and due again before a worker comes to it.
func TestNackWhileReady(t *testing.T) {
	s := stand(t, filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{})
	d := s.d
	d.replay, d.o.StuckAfter = walk{}, 0
	s.change(cache.Added, "a")
	s.flush()
	for len(d.keys) == 0 && d.fill() {
	}
	told := s.called("default/a")
	d.returned(told, ErrAckLater)
	s.movedOut("default/a")
	s.change(cache.Updated, "a")
	s.flush()
	for d.fill() {
	}
	q := d.keys["default/a"]
	if !q.ready {
		t.Fatalf("%+v", q)
	}
	Event{delivery: told}.Nack(errors.New("no"))
	d.mu.Lock()
	q.waiting = false // it is time
	d.schedule(q)
	d.mu.Unlock()
	go d.work()
	eventually(t, "it is told from the file", func() bool {
		d.fill()
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.keys["default/a"] == nil
	})
	d.cancel()
	d.wakeAll()
	var got []cache.DeltaType
	for _, e := range d.handler.(*ledger).taken() {
		if e.Key == "default/a" {
			got = append(got, e.Type)
		}
	}
	if len(got) != 2 || got[0] != cache.Added || got[1] != cache.Updated {
		t.Errorf("told %v", got)
	}
	s.end()
}

// TestDurableLoadsWithoutRoom: keys that are to be read from the file go on
// where memory is full of what waits behind such keys.
func TestDurableLoadsWithoutRoom(t *testing.T) {
	w := newWorld(t)
	r := newLedger(t)
	var stuck atomic.Bool
	stuck.Store(true)
	r.answers(func(Event) error {
		if stuck.Load() {
			return errors.New("no")
		}
		return nil
	})
	o := DurableOptions{MaxPending: 4, StuckAfter: 1}
	l := w.durably(o, r).run().synced()
	for i := range 10 {
		w.create(fmt.Sprint("bad", i))
	}
	eventually(t, "they are in the file", func() bool {
		hs, err := l.inf.store.Handlers()
		return err == nil && len(hs) == 1 && hs[0].Parked == 10
	})
	var d *durable
	l.inf.mu.Lock()
	for d = range l.inf.durables {
	}
	l.inf.mu.Unlock()
	d.mu.Lock()
	d.held += o.MaxPending
	d.mu.Unlock()
	stuck.Store(false)
	eventually(t, "they are told", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.keys) == 0
	})
	d.mu.Lock()
	d.held -= o.MaxPending
	d.mu.Unlock()
	l.acknowledged().end()
}

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
