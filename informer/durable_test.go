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
func (inf *Informer) idle(d *durableHandler) bool {
	d.mu.Lock()
	inHand := len(d.keys)
	d.mu.Unlock()
	if inHand > 0 || d.claim.Behind() {
		return false
	}
	for from, more := []byte(nil), true; more; more = from != nil {
		var keys []boltstore.PendingKey
		var err error
		if keys, from, err = d.claim.Keys(from, 1000); err != nil {
			return false
		}
		for _, k := range keys {
			if _, pending, err := d.claim.Read(k.Key); pending || err != nil {
				return false
			}
		}
	}
	return true
}

// TestDurable: each change is told once, and after a restart only new ones.
func TestDurable(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.create("b")
	r := newLedger(t)
	l := w.durably(DurableOptions{}, r).run().synced().equal()
	r.expect("reset", "initial a", "initial b")
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

// TestDurableTellsUnacknowledgedAgain: only what was not acknowledged, as it is now, with the
// deletes of all objects that came and went.
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
	tell := func(what string, change func()) Event {
		t.Helper()
		change()
		r.expect(what)
		events := r.taken()
		return events[len(events)-1]
	}
	a := tell("update a", func() { w.update("a", "1") })
	tell("delete b", func() { w.delete("b") })
	first := tell("update c", func() { w.update("c", "1") })
	tell("update c", func() { w.update("c", "2") })
	tell("update d", func() { w.update("d", "1") })
	w.delete("d")
	w.create("d", "2")
	l.equal()
	a.Ack()
	a.Ack()
	first.Ack() // of c, which has changed since
	eventually(t, "the new object is told", func() bool {
		r.recorder.mu.Lock()
		defer r.recorder.mu.Unlock()
		return r.there["d"] != nil && r.there["d"].Data["data"] == "2"
	})
	r.taken()
	r.take()
	l.end()

	r.answers(nil)
	r.recorder.mu.Lock()
	delete(r.there, "d") // it is told again
	r.recorder.mu.Unlock()
	w.durably(DurableOptions{}, r).run().synced().equal().acknowledged().end()
	r.expect("delete b", "update c", "delete d", "add d")
	w.durably(DurableOptions{}, r).run().synced().equal().acknowledged().end()
	if got := r.take(); len(got) > 0 {
		t.Errorf("told again what was acknowledged: %q", got)
	}
}

// TestDurableRetries: a key that fails is told again while others go on, and at last with its
// present state.
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
	eventually(t, "good is told", func() bool {
		r.recorder.mu.Lock()
		defer r.recorder.mu.Unlock()
		o := r.there["good"]
		return o != nil && o.Data["data"] == "49"
	})
	l.equal()
	mu.Lock()
	fail = false
	mu.Unlock()
	l.acknowledged()
	last := map[string]Event{}
	for _, e := range r.taken() {
		if was := last[e.Key]; e.Seq < was.Seq {
			t.Errorf("%d after %d", e.Seq, was.Seq)
		} else if e.Key == "default/bad" && e.Attempt != was.Attempt+1 {
			t.Errorf("attempt %d after %d", e.Attempt, was.Attempt)
		}
		last[e.Key] = e
	}
	if e := last["default/bad"]; len(e.Deleted) != 1 || e.Object != nil || !slices.Equal(r.names(), []string{"good"}) {
		t.Errorf("last %+v, it believes in %v", e, r.names())
	}
	l.end()
}

// TestDurableNack: a refusal counts if it is of the key's last call, an acknowledgement if
// the key has not changed since.
func TestDurableNack(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	r := newLedger(t)
	l := w.durably(DurableOptions{}, r).run().synced().equal().acknowledged()
	r.taken()
	r.answers(func(Event) error { return ErrAckLater })
	var events []Event
	tell := func() {
		t.Helper()
		events = append(events, r.takenOf("default/a", 1)...)
	}
	for i := range 3 {
		w.update("a", fmt.Sprint(i))
		tell()
	}
	events[1].Nack(errors.New("of an earlier call"))
	events[2].Nack(errors.New("no"))
	events[2].Nack(errors.New("no"))
	tell()
	if e := events[3]; e.Seq != events[2].Seq || e.Attempt != 4 {
		t.Errorf("%+v", e)
	}
	lag := func(failing int, failures uint64) {
		t.Helper()
		if lag := l.inf.Lags()[0]; lag.Failing != failing || lag.Failures != failures {
			t.Errorf("%+v", lag)
		}
	}
	lag(1, 1)
	events[1].Ack()
	lag(1, 1)
	events[2].Ack() // of what the last call was told, too
	l.acknowledged()
	lag(0, 1)
	events[3].Nack(errors.New("it is acknowledged"))
	lag(0, 1)
	w.update("a", "last")
	tell()
	if e := events[4]; e.Attempt != 1 || e.Old.(*corev1.ConfigMap).Data["data"] != "2" {
		t.Errorf("%+v", e)
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
		if e.Reset {
			return nil
		}
		if len(acked) >= stop || e.Key == "default/o0007" && stop == 400 {
			return ErrAckLater
		}
		acked[e.Key] = true
		return nil
	})
	l := w.durably(DurableOptions{}, r).run().synced()
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
	r.expect("reset", "initial a")
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
	r.expect("reset", "initial a")
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
