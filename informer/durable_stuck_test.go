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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubewake/kubewake/informer/internal/durable"
)

// TestDurableStuck: stuck keys, however many, do not hold up others.
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
	o := DurableOptions{maxPending: 4, stuckAfter: 1}
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
	o := DurableOptions{maxPending: 2, RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Hour, time.Hour)}
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

// TestHotKeysThatWait: keys with more changes than a handler takes ahead of its
// acknowledgement move to the file, too, and hold up neither others nor HasSynced.
func TestHotKeysThatWait(t *testing.T) {
	w := newWorld(t)
	r := newLedger(t)
	var mu sync.Mutex
	var later []Event
	answers := func(e Event) error {
		if e.Object.(*corev1.ConfigMap).Data["data"] == "good" {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		later = append(later, e)
		return ErrAckLater
	}
	r.answers(answers)
	o := DurableOptions{maxPending: 3 * durable.AheadOfAck, stuckAfter: 1}
	l := w.durably(o, r).run().synced().replayed()
	for i := range 6 {
		w.create(fmt.Sprint("hot", i))
		for n := range 2 * durable.AheadOfAck {
			w.update(fmt.Sprint("hot", i), fmt.Sprint(n))
		}
	}
	w.create("good", "good")
	eventually(t, "another key is told", func() bool {
		r.recorder.mu.Lock()
		defer r.recorder.mu.Unlock()
		return r.there["good"] != nil
	})
	d := l.only()
	eventually(t, "they are in the file", func() bool {
		hs, err := l.inf.store.Handlers()
		return err == nil && len(hs) == 1 && hs[0].Parked >= 3
	})
	ackAll := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range later {
			e.Ack()
		}
		later = nil
	}
	eventually(t, "all is told and acknowledged", func() bool {
		ackAll()
		return l.inf.idle(d)
	})
	for i := range 6 {
		if got := r.there[fmt.Sprint("hot", i)]; got == nil || got.Data["data"] != fmt.Sprint(2*durable.AheadOfAck-1) {
			t.Errorf("hot%d is %v", i, got)
		}
	}

	// An earlier life has left more than is told ahead.
	r.answers(func(Event) error { return errors.New("no") })
	for n := range 2 * durable.AheadOfAck {
		w.update("hot0", fmt.Sprint("again", n))
	}
	l.equal().end()
	r.answers(answers)
	l = w.live(Options{})
	reg, err := l.inf.AddDurableHandler("test", r, DurableOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l.run().synced()
	eventually(t, "it has synced, and nothing is acknowledged", reg.HasSynced)
	eventually(t, "acknowledged", func() bool { ackAll(); return l.inf.idle(l.only()) })
	l.end()
}

// TestCollapsedDeletes: changes that are told again are collapsed, and include the delete
// of each object that was told before.
func TestCollapsedDeletes(t *testing.T) {
	w := newWorld(t)
	r := newLedger(t)
	r.answers(func(Event) error { return ErrAckLater })
	l := w.durably(DurableOptions{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](300*time.Millisecond, time.Second)}, r).run().synced().replayed()
	comeAndGo := func(n int) {
		for range n {
			w.create("a")
			w.delete("a")
		}
	}
	comeAndGo(7)
	w.create("a")
	w.update("a", "1")
	eventually(t, "told", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.events) == durable.AheadOfAck })
	w.delete("a")
	comeAndGo(10)
	d := l.only()
	eventually(t, "all is there", func() bool { return d.Inspect().Cursor == 2*(8+10)+1 })
	events := r.taken()
	r.answers(nil)
	r.recorder.mu.Lock()
	clear(r.there) // it is told again from the first on
	r.recorder.mu.Unlock()
	events[0].Nack(nil)
	comeAndGo(1) // collapses what waits for the retry
	l.acknowledged()
	known := map[types.UID]bool{}
	for _, e := range events {
		known[e.Object.(*corev1.ConfigMap).UID] = true
	}
	again := r.taken()
	for _, e := range again {
		if e.Type == cache.Deleted {
			delete(known, e.Object.(*corev1.ConfigMap).UID)
		}
	}
	if len(known) > 0 {
		t.Errorf("told of and never of their deletes: %v in %s", known, listed(again))
	}
	if len(again) >= 2*(8+10+1) {
		t.Errorf("%d events: they were not collapsed", len(again))
	}
	l.end()
}

func listed(events []Event) (s string) {
	for _, e := range events {
		o := e.Object.(*corev1.ConfigMap)
		s += fmt.Sprintf("\n%s %s %s of %s at %d", e.Type, e.Key, o.ResourceVersion, o.UID, e.Seq)
	}
	return s
}

// TestKept: events that are kept for the next life make room for others at once, and the
// next life is told them.
func TestKept(t *testing.T) {
	w := newWorld(t)
	w.options.FlushInterval = 5 * time.Millisecond
	for i := range 60 {
		w.create(fmt.Sprint("o", i), "one")
	}
	var mu sync.Mutex
	told := map[string]int{}
	answer := func(e Event) error { go e.Keep(); return ErrAckLater }
	life := func() *life {
		l := w.live(Options{})
		l.inf.page = 4
		if _, err := l.inf.AddDurableHandler("kept", DurableHandlerFunc(func(_ context.Context, e Event) error {
			mu.Lock()
			defer mu.Unlock()
			told[e.Key]++
			return answer(e)
		}), DurableOptions{maxPending: 4}); err != nil { // without Keep: 10 s for each four
			t.Fatal(err)
		}
		return l.run().synced()
	}
	all := func(times int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			n := 0
			for _, m := range told {
				if m >= times {
					n++
				}
			}
			return n == 60
		}
	}
	l := life()
	eventually(t, "all are told", all(1))
	l.end()
	l = life()
	eventually(t, "all are told again", all(2))
	l.end()
	answer = func(Event) error { return nil }
	l = life()
	eventually(t, "all are told once more", all(3))
	eventually(t, "none is left", func() bool {
		hs, err := l.inf.store.Handlers()
		return err == nil && len(hs) == 1 && hs[0].Parked == 0
	})
	l.end()
}
