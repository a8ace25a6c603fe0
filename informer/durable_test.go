package informer

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer/internal/durable"
)

func (w *world) durably(o DurableOptions, h DurableHandler) *life {
	w.t.Helper()
	l := w.live(Options{})
	if _, err := l.inf.AddDurableHandler("test", h, o); err != nil {
		w.t.Fatal(err)
	}
	return l
}

// acknowledged waits until the durable handlers have acknowledged all changes.
func (l *life) acknowledged() *life {
	l.t.Helper()
	eventually(l.t, "acknowledged", func() bool {
		for d := range l.inf.durables {
			if !l.inf.idle(d) {
				return false
			}
		}
		return true
	})
	return l
}

// idle says whether a handler has acknowledged all changes.
func (inf *Informer) idle(d *durable.Handler) bool {
	p, err := inf.store.Replay(nil, 0) // what the file has, which memory may not know yet
	if err != nil {
		return false
	}
	st := d.Inspect()
	return len(st.Tasks) == 0 && !st.Replaying && !st.Unparking && !st.StartingOver && st.Cursor == p.Seq && st.Mark <= st.Cursor
}

// TestDurable: each change is told once, and after a restart only new ones.
func TestDurable(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.create("b")
	r := newLedger(t)
	l := w.durably(DurableOptions{}, r).run().synced().equal()
	r.expect("initial a", "initial b")
	w.create("c")
	w.update("a", "1")
	w.delete("b")
	r.expect("add c", "update a", "delete b")
	l.acknowledged().end()

	w.create("d")
	w.update("a", "2")
	w.delete("c")
	l = w.durably(DurableOptions{}, r).run().synced().equal()
	r.expect("add d", "update a", "delete c")
	l.acknowledged().end()
	l = w.durably(DurableOptions{}, r).run().synced().equal().acknowledged()
	if got := r.take(); len(got) > 0 {
		t.Errorf("told again what was acknowledged: %q", got)
	}
	l.end()
}

// TestDurableTellsUnacknowledgedAgain: out of order, and only these.
func TestDurableTellsUnacknowledgedAgain(t *testing.T) {
	w := newWorld(t)
	for _, n := range []string{"a", "b", "c", "d"} {
		w.create(n)
	}
	r := newLedger(t)
	l := w.durably(DurableOptions{}, r).run().synced().equal().acknowledged()
	r.take()
	r.taken()
	r.answers(func(Event) error { return ErrAckLater })
	w.update("a", "1")
	w.delete("b")
	w.update("c", "1")
	w.update("c", "2")
	w.update("d", "1")
	w.delete("d")
	w.create("d")
	eventually(t, "told", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.events) == 7 })
	for _, e := range r.taken() {
		switch { // a whole, the second of c, the first of d
		case e.Key == "default/a", e.Key == "default/c" && e.Object.(*corev1.ConfigMap).Data["data"] == "2", e.Key == "default/d" && e.Type == cache.Updated:
			e.Ack()
			e.Ack()
		}
	}
	r.take()
	l.end()

	r.answers(nil)
	w.durably(DurableOptions{}, r).run().synced().equal().acknowledged().end()
	r.expect("delete b", "update c", "update c", "delete d", "add d")
	w.durably(DurableOptions{}, r).run().synced().equal().acknowledged().end()
	if got := r.take(); len(got) > 0 {
		t.Errorf("told again what was acknowledged: %q", got)
	}
}

// TestDurableRetries: a key that fails is told again, in order, while others go on.
func TestDurableRetries(t *testing.T) {
	w := newWorld(t)
	w.create("bad")
	w.create("good")
	r := newLedger(t)
	fail := true
	var mu sync.Mutex
	r.answers(func(e Event) error {
		mu.Lock()
		defer mu.Unlock()
		if e.Key == "default/bad" && fail {
			return errors.New("not now")
		}
		return nil
	})
	l := w.durably(DurableOptions{Workers: 2}, r).run().synced().equal().replayed()
	for i := range 50 {
		w.update("bad", fmt.Sprint(i))
		w.update("good", fmt.Sprint(i))
	}
	w.delete("bad")
	goods := 0
	eventually(t, "good is told", func() bool {
		for _, e := range r.taken() {
			if e.Key == "default/good" {
				goods++
			} else if !e.Initial {
				t.Fatalf("told %s %d of a key whose first event failed", e.Type, e.Seq)
			}
		}
		return goods == 51
	})
	mu.Lock()
	fail = false
	mu.Unlock()
	l.equal().acknowledged() // the delete comes after what was told so far
	var last Event
	for _, e := range r.taken() {
		if e.Seq < last.Seq {
			t.Errorf("%d after %d", e.Seq, last.Seq)
		}
		last = e
	}
	if last.Type != cache.Deleted || !slices.Equal(r.names(), []string{"good"}) {
		t.Errorf("last %+v, it believes in %v", last, r.names())
	}
	l.end()
}

// TestDurableNack: telling goes back to the first event that is not acknowledged.
func TestDurableNack(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	r := newLedger(t)
	l := w.durably(DurableOptions{}, r).run().synced().equal().acknowledged()
	r.taken()
	r.answers(func(Event) error { return ErrAckLater })
	w.update("a", "1")
	w.update("a", "2")
	w.update("a", "3")
	eventually(t, "told", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.events) == 3 })
	events := r.taken()
	r.answers(nil)
	events[0].Ack()
	events[2].Ack()
	events[1].Nack(errors.New("no"))
	l.acknowledged()
	again := r.taken()
	if len(again) != 2 || again[0].Seq != events[1].Seq || again[0].Attempt != 2 || again[1].Seq != events[2].Seq {
		t.Errorf("%+v", again)
	}
	l.end()
}

// TestDurableReplayGoesOn: a crash in the middle of the first replay.
func TestDurableReplayGoesOn(t *testing.T) {
	w := newWorld(t)
	const n = 1000
	for i := range n {
		w.create(fmt.Sprintf("o%04d", i))
	}
	r := newLedger(t)
	var mu sync.Mutex
	acked := map[string]bool{}
	stop := 400
	r.answers(func(e Event) error {
		mu.Lock()
		defer mu.Unlock()
		if len(acked) >= stop || e.Key == "default/o0007" && stop == 400 {
			return ErrAckLater
		}
		acked[e.Key] = true
		return nil
	})
	l := w.durably(DurableOptions{maxPending: 300}, r).run().synced()
	eventually(t, "some are acknowledged", func() bool { mu.Lock(); defer mu.Unlock(); return len(acked) == stop })
	l.end()

	before := acked
	acked, stop = map[string]bool{}, 2*n
	w.delete("o0007")
	w.delete("o0100")
	w.delete("o0999")
	w.update("o0200", "1")
	w.update("o0998", "1")
	r.taken()
	l = w.durably(DurableOptions{}, r).run().synced().equal().acknowledged()
	for _, e := range r.taken() {
		if before[e.Key] && e.Initial {
			t.Errorf("%s was acknowledged and is replayed", e.Key)
		}
	}
	if got := len(r.names()); got != n-3 {
		t.Errorf("it believes in %d objects", got)
	}
	if r.there["o0200"].Data["data"] != "1" || r.there["o0998"].Data["data"] != "1" {
		t.Error("updates are missing")
	}
	l.end()
	w.durably(DurableOptions{}, r).run().synced().equal().acknowledged().end()
	if got := r.taken(); len(got) > 0 {
		t.Errorf("told again: %d", len(got))
	}
}

// TestDurableNames: a name is in use once, and forgotten when it is removed.
func TestDurableNames(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	r := newLedger(t)
	l := w.durably(DurableOptions{}, r).run().synced().acknowledged()
	r.expect("initial a")
	if _, err := l.inf.AddDurableHandler("test", r, DurableOptions{}); !errors.Is(err, boltstore.ErrClaimed) {
		t.Errorf("twice: %v", err)
	}
	if err := l.inf.RemoveDurableHandler("test"); err != nil {
		t.Fatal(err)
	}
	if hs, err := l.inf.store.Handlers(); err != nil || len(hs) > 0 {
		t.Errorf("%+v %v", hs, err)
	}
	reg, err := l.inf.AddDurableHandler("test", r, DurableOptions{})
	if err != nil {
		t.Fatal(err)
	}
	r.expect("initial a")
	l.acknowledged()
	eventually(t, "synced", reg.HasSynced)
	if err := cache.ShutDownEventHandler(l.inf, reg); err != nil {
		t.Fatal(err)
	}
	w.create("b")
	l.equal()
	if _, err := l.inf.AddDurableHandler("test", r, DurableOptions{}); err != nil {
		t.Fatal(err)
	}
	r.expect("add b")
	l.end()
}
