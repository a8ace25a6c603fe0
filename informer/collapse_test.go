package informer

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubewake/kubewake/informer/internal/durable"
)

// TestCollapsedDeletes: what is told again is collapsed, and has the delete of
// each object that was told before.
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
