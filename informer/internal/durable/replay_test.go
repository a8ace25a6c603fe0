package durable

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestLeftToTheReplay: a change that was left to the replay while a commit parked it is
// not told by a later life.
func TestLeftToTheReplay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wake.db")
	s := stand(t, path, boltstore.Options{})
	d := s.d
	s.change(cache.Added, "a")
	last := s.flush()
	if p := d.Position(); p.Cursor != 0 || !p.Replaying { // the commit might park what is behind it
		t.Fatalf("%+v", p)
	}
	s.takeIn(last) // meanwhile it is left to the replay
	if d.pos.settled["default/a"] != last {
		t.Errorf("settled %v: a record of it would stay", d.pos.settled)
	}
	// The same behind a delete that is told: it goes with that.
	d.queues.known = last + 1
	s.change(cache.Deleted, "a")
	s.change(cache.Added, "a")
	last = s.flush()
	s.takeIn(last)
	if q := d.queues.ofKey["default/a"]; q == nil || len(q.tasks) != 1 || q.tasks[0].entry.Type != cache.Deleted || q.tasks[0].last != last {
		t.Errorf("%+v", q)
	}
	s.end()
}

// TestGoneBeforeItWasShown: deletes that are older than a page that shows the key's object
// are not told after it, if the object is still to be shown.
func TestGoneBeforeItWasShown(t *testing.T) {
	for _, told := range []bool{false, true} {
		t.Run(fmt.Sprint("told ", told), func(t *testing.T) {
			s := stand(t, filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{JournalBytes: 1})
			d := s.d
			s.change(cache.Added, "b")
			s.change(cache.Added, "a")
			s.change(cache.Deleted, "a")
			s.change(cache.Added, "a")
			s.flush()
			s.fillUntil(func() bool { return len(s.d.queues.ofKey) > 0 })
			// A commit that has asked for the position before parks the change that was
			// left to the replay, and later ones.
			shown, settled := s.swap(1, map[string]uint64{})
			s.change(cache.Updated, "a")
			s.parkedTo("default/a", s.flush())
			s.swap(shown, settled)
			want := fmt.Sprintf("Deleted 3, Added %d", s.rvOf["a"])
			if told {
				d.queues.returned(s.called("default/a"), nil)
				d.queues.returned(s.called("default/a"), ErrAckLater)
				want = fmt.Sprintf("Added 4, Added %d", s.rvOf["a"])
			}
			s.unparkAll()
			if got := s.inHand("default/a"); got != want {
				t.Errorf("in hand: %s, want %s", got, want)
			}
			if q := d.queues.ofKey["default/a"]; !told && !q.tasks[1].initial {
				t.Error("it is not initial")
			}
			s.end()
		})
	}
}

// TestParkedBehindWhatIsShown: an update of an object that is still to be shown does not
// come in its place.
func TestParkedBehindWhatIsShown(t *testing.T) {
	s := stand(t, filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{JournalBytes: 1})
	d := s.d
	s.change(cache.Added, "a")
	shown := s.flush()
	s.fillUntil(func() bool { return len(s.d.queues.ofKey) > 0 })
	if d.pos.cursor != shown {
		t.Fatalf("at %d of %d", d.pos.cursor, shown)
	}
	s.change(cache.Updated, "a")
	s.parkedTo("default/a", s.flush())
	s.unparkAll()
	if got, want := s.inHand("default/a"), fmt.Sprintf("Added 1, Updated %d", s.rvOf["a"]); got != want {
		t.Errorf("in hand: %s, want %s", got, want)
	}
	s.end()
}

// TestParkedBeforeReplay: a change that the replay has not reached is left to it, even if
// it was parked behind a delete that is told before.
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
	s.takeIn(last - 1) // it has not come to the add
	q := d.queues.ofKey["default/a"]
	if q == nil || len(q.tasks) != 1 || d.replay.begun {
		t.Fatalf("%+v", q)
	}
	// The delete fails, and moves to the file since memory is full.
	d.o.MaxPending = 1
	d.queues.returned(s.called("default/a"), errors.New("no"))
	d.mu.Lock()
	d.block()
	d.mu.Unlock()
	s.store.SetTold(last)
	eventually(t, "parked, with the add behind it", func() bool {
		s.change(cache.Added, fmt.Sprint("tick", s.rv))
		s.flush()
		p, err := d.claim.ParkedOf([]string{"default/a"}, 0)
		return err == nil && len(p.Keys) == 1 && len(p.Entries[0]) == 2
	})
	d.mu.Lock()
	q.waiting = false // it is time
	d.queues.schedule(q)
	d.mu.Unlock()
	if len(d.queues.loads) != 1 {
		t.Fatalf("%+v", q)
	}
	s.load()
	if len(q.tasks) != 1 || q.tasks[0].entry.Type != cache.Deleted || q.tasks[0].more {
		for _, x := range q.tasks {
			t.Errorf("it is told of %s at %d, more %v", x.entry.Type, x.last, x.more)
		}
	}
	s.end()
}

// TestParkedAcrossReplay: an update that was collapsed across the moment at which the
// replay showed the object has no Old: the handler was never told that state.
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
	s.fillUntil(func() bool { return len(s.d.queues.ofKey) > 0 })
	if d.pos.cursor != shown || len(d.queues.ofKey) != 1 {
		t.Fatalf("at %d of %d: %v", d.pos.cursor, shown, d.queues.ofKey)
	}
	// A commit that has asked for the position before parks the change that was left to
	// the replay, and later ones.
	before := func(cursor uint64, settled map[string]uint64) {
		d.mu.Lock()
		d.pos.cursor, d.pos.settled = cursor, settled
		d.mu.Unlock()
	}
	settled := d.pos.settled
	before(shown-1, map[string]uint64{})
	s.change(cache.Updated, "a")
	last := s.flush()
	s.store.SetTold(last)
	eventually(t, "parked", func() bool {
		s.change(cache.Added, fmt.Sprint("tick", s.rv))
		s.flush()
		p, err := d.claim.ParkedOf([]string{"default/a"}, 0)
		return err == nil && len(p.Keys) == 1 && p.Last[0] == last && p.Entries[0][0].Type == cache.Updated
	})
	before(shown, settled)
	call := s.called("default/a")
	toldOf := func() string {
		t.Helper()
		s.unparkAll()
		q := d.queues.ofKey["default/a"]
		task := q.tasks[len(q.tasks)-1]
		if task.last != last {
			t.Fatalf("%+v", task)
		}
		return string(task.entry.Type)
	}
	if typ := toldOf(); typ != string(cache.Added) {
		t.Errorf("%s from before it was shown", typ)
	}
	d.queues.returned(call, nil) // it acknowledges what it was shown, no more
	s.end()

	s = stand(t, path, boltstore.Options{})
	if d = s.d; d.replay.active || len(d.replay.shown) > 0 {
		t.Fatalf("%+v %v", d.replay, d.replay.shown)
	}
	if typ := toldOf(); typ != string(cache.Added) {
		t.Errorf("in the next life: %s from before it was shown", typ)
	}
	s.end()
}
