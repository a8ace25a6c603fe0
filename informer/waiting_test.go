package informer

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/informer/internal/durable"
)

// TestHotKeysThatWait: keys that are told of more than a handler takes ahead of
// its acknowledgement move to the file, too, and hold up neither others nor
// HasSynced.
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
	o := DurableOptions{MaxPending: 3 * durable.AheadOfAck, StuckAfter: 1}
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

	// Of an earlier life there is more than is told ahead.
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
