package informer

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
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

// TestReach: while a commit is under way a handler that is behind is told no
// more than that commit knows of.
func TestReach(t *testing.T) {
	s := stand(t, filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{})
	d := s.d
	d.replay = walk{} // as after it
	for i := range 2*aheadOfCommit + 10 {
		s.change(cache.Added, fmt.Sprint("o", i))
	}
	last := s.flush()
	if err := d.h.Release(); err != nil { // no commit asks it any more but we
		t.Fatal(err)
	}
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
		tick := d.inf.backlog.Tick()
		d.Persisted(0)
		if d.cursor < last && d.inf.backlog.Tick() == tick {
			t.Error("it waits on")
		}
	}
	s.end()
}

// TestParkedBeforeReplay: what the replay has not reached is left to it, also
// where it was parked behind a delete that is told before.
func TestParkedBeforeReplay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wake.db")
	s := stand(t, path, boltstore.Options{})
	s.change(cache.Added, "a")
	s.flush()
	s.end()

	s = stand(t, path, boltstore.Options{JournalBytes: 1})
	s.rv = 1
	s.change(cache.Deleted, "a")
	s.change(cache.Added, "a")
	last := s.flush()
	d := s.d
	for d.cursor < last-1 { // it has not come to the add
		if !d.fillEntries(last - 1) {
			t.Fatalf("at %d of %d", d.cursor, last)
		}
	}
	q := d.keys["default/a"]
	if q == nil || len(q.tasks) != 1 || d.replay.begun {
		t.Fatalf("%+v", q)
	}
	// The delete fails, and moves to the file since memory is full.
	d.o.MaxPending = 1
	d.returned(s.called("default/a"), errors.New("no"))
	d.mu.Lock()
	d.block()
	d.mu.Unlock()
	d.inf.store.SetTold(last)
	eventually(t, "parked, with the add behind it", func() bool {
		s.change(cache.Added, fmt.Sprint("tick", s.rv))
		s.flush()
		p, err := d.h.ParkedOf([]string{"default/a"}, 0)
		return err == nil && len(p.Keys) == 1 && len(p.Entries[0]) == 2
	})
	d.mu.Lock()
	q.waiting = false // it is time
	d.schedule(q)
	d.mu.Unlock()
	if len(d.loads) != 1 {
		t.Fatalf("%+v", q)
	}
	for len(d.loads) > 0 && d.fillLoads(1) {
	}
	if len(q.tasks) != 1 || q.tasks[0].entry.Type != cache.Deleted || q.tasks[0].more {
		for _, x := range q.tasks {
			t.Errorf("it is told of %s at %d, more %v", x.entry.Type, x.last, x.more)
		}
	}
	s.end()
}

// TestParkedAcrossReplay: an update that was collapsed from before the replay
// showed the object to after it has no Old: the handler was never told that.
func TestParkedAcrossReplay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wake.db")
	s := stand(t, path, boltstore.Options{})
	s.change(cache.Added, "a")
	s.flush()
	s.end()

	s = stand(t, path, boltstore.Options{JournalBytes: 1})
	s.rv, s.uids["a"] = 1, "a1"
	d := s.d
	s.change(cache.Updated, "a")
	shown := s.flush()
	for len(d.keys) == 0 && d.fill() {
	}
	if d.cursor != shown || len(d.keys) != 1 {
		t.Fatalf("at %d of %d: %v", d.cursor, shown, d.keys)
	}
	// A commit that has asked for the position before parks what was left to the
	// replay, and what came after it.
	before := func(cursor uint64, settled map[string]uint64) {
		d.mu.Lock()
		d.cursor, d.settled = cursor, settled
		d.mu.Unlock()
	}
	settled := d.settled
	before(shown-1, map[string]uint64{})
	s.change(cache.Updated, "a")
	last := s.flush()
	d.inf.store.SetTold(last)
	eventually(t, "parked", func() bool {
		s.change(cache.Added, fmt.Sprint("tick", s.rv))
		s.flush()
		p, err := d.h.ParkedOf([]string{"default/a"}, 0)
		return err == nil && len(p.Keys) == 1 && p.Last[0] == last && p.Entries[0][0].Type == cache.Updated
	})
	before(shown, settled)
	call := s.called("default/a")
	toldOf := func() string {
		t.Helper()
		for d.parked.active || d.mark > d.cursor {
			if !d.fillParked() {
				t.Fatal("nothing to take in")
			}
		}
		q := d.keys["default/a"]
		task := q.tasks[len(q.tasks)-1]
		if task.last != last {
			t.Fatalf("%+v", task)
		}
		return string(task.entry.Type)
	}
	if typ := toldOf(); typ != string(cache.Added) {
		t.Errorf("%s from before it was shown", typ)
	}
	d.returned(call, nil) // it acknowledges what it was shown, no more
	s.end()

	s = stand(t, path, boltstore.Options{})
	if d = s.d; d.replay.active || len(d.shown) > 0 {
		t.Fatalf("%+v %v", d.replay, d.shown)
	}
	if typ := toldOf(); typ != string(cache.Added) {
		t.Errorf("in the next life: %s from before it was shown", typ)
	}
	s.end()
}
