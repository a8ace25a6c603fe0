package informer

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// TestCollapsedDeletes: what is told again is collapsed, and has the delete of
// each object that was told before.
func TestCollapsedDeletes(t *testing.T) {
	w := newWorld(t)
	r := newLedger(t)
	r.answers(func(Event) error { return ErrAckLater })
	l := w.durably(DurableOptions{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](300*time.Millisecond, time.Second)}, r).run().synced()
	comeAndGo := func(n int) {
		for range n {
			w.create("a")
			w.delete("a")
		}
	}
	comeAndGo(7)
	w.create("a")
	w.update("a", "1")
	eventually(t, "told", func() bool { r.mu.Lock(); defer r.mu.Unlock(); return len(r.events) == aheadOfAck })
	w.delete("a")
	comeAndGo(10)
	d := l.only()
	eventually(t, "all is there", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.cursor == 2*(8+10)+1 })
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

// only is the informer's durable handler.
func (l *life) only() (d *durable) {
	l.inf.mu.Lock()
	defer l.inf.mu.Unlock()
	for d = range l.inf.durables {
	}
	return d
}

// TestReach: while a commit is under way a handler that is behind is told no
// more than that commit knows of.
func TestReach(t *testing.T) {
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{Durability: boltstore.Process, Window: 1, FlushInterval: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	inf, err := NewSharedIndexInformer(db, &cache.ListWatch{}, &corev1.ConfigMap{}, Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := inf.AddDurableHandler("test", newLedger(t), DurableOptions{MaxPending: 1 << 20, PendingBytes: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	l := &life{inf: inf}
	d := l.only()
	d.replay = walk{} // as after it
	j := fifo.New(inf.store, fifo.Options{MaxBytes: 1 << 30})
	for i := range 2*aheadOfCommit + 10 {
		o := cm(fmt.Sprint("o", i))
		o.ResourceVersion = fmt.Sprint(i + 1)
		if err := j.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	last := inf.store.State().Seq
	inf.backlog.jump(last)
	for _, want := range []uint64{aheadOfCommit, 2 * aheadOfCommit, last} {
		p := d.Position()
		if again := d.Position(); again.Reach != p.Reach {
			t.Errorf("a commit that fails may be in the file: reach %d, then %d", p.Reach, again.Reach)
		}
		for d.fillEntries(last) {
		}
		if d.cursor > p.Reach || d.cursor != want {
			t.Errorf("at %d of %d, reach %d, want %d", d.cursor, last, p.Reach, want)
		}
		tick := inf.backlog.tick()
		d.Persisted(0)
		if d.cursor < last && inf.backlog.tick() == tick {
			t.Error("it waits on")
		}
	}
	j.Close()
	if err := d.h.Release(); err != nil {
		t.Fatal(err)
	}
	inf.store.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
