package informer

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/kubewake/kubewake/boltstore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestParkedTwice: a key of which the file parks more while what it had parked
// is in hand, told or acknowledged: each delete comes once, before the object
// that took the key.
func TestParkedTwice(t *testing.T) {
	for name, c := range map[string]struct {
		told, acked int
		want        string
	}{
		"in hand":           {0, 0, "Deleted 2, Added %d"},
		"the delete told":   {1, 0, "Deleted 2, Added %d"},
		"both told":         {2, 0, "Deleted 2, Added 3, Added %d"},
		"the delete acked":  {1, 1, "Added %d"},
		"both acknowledged": {2, 2, "Added %d"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "wake.db")
			s := stand(t, path, boltstore.Options{JournalBytes: 1})
			s.change(cache.Added, "a")
			s.flush()
			for len(s.d.keys) == 0 && s.d.fill() {
			}
			s.ackAll()
			s.change(cache.Deleted, "a")
			s.change(cache.Added, "a")
			s.parkedTo("default/a", s.flush())
			s.unparkAll()
			if got := s.inHand("default/a"); got != "Deleted 2, Added 3" {
				t.Fatalf("in hand: %s", got)
			}
			for i := range c.told {
				err := ErrAckLater
				if i < c.acked {
					err = nil
				}
				s.d.returned(s.called("default/a"), err)
			}
			cursor, settled := s.swap(s.d.cursor, map[string]uint64{}) // a commit that has asked before knows nothing of it
			s.change(cache.Updated, "a")
			s.parkedTo("default/a", s.flush())
			s.swap(cursor, settled)
			s.unparkAll()
			if want := fmt.Sprintf(c.want, s.rvOf["a"]); s.inHand("default/a") != want {
				t.Errorf("in hand: %s, want %s", s.inHand("default/a"), want)
			}
			rv := s.rvOf["a"]
			s.end()

			s = stand(t, path, boltstore.Options{})
			s.unparkAll()
			want := fmt.Sprint("Added ", rv)
			if c.acked == 0 {
				want = "Deleted 2, " + want
			}
			if got := s.inHand("default/a"); got != want {
				t.Errorf("in the next life: %s, want %s", got, want)
			}
			s.end()
		})
	}
}

// TestGoneBeforeItWasShown: deletes of before a page that shows the key's object
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
			for len(d.keys) == 0 && d.fill() {
			}
			// A commit that has asked for the position before parks what was left
			// to the replay, and what came after it.
			shown, settled := s.swap(1, map[string]uint64{})
			s.change(cache.Updated, "a")
			s.parkedTo("default/a", s.flush())
			s.swap(shown, settled)
			want := fmt.Sprintf("Added %d", s.rvOf["a"])
			if told {
				d.returned(s.called("default/a"), ErrAckLater)
				want = fmt.Sprintf("Added 4, Added %d", s.rvOf["a"])
			}
			s.unparkAll()
			if got := s.inHand("default/a"); got != want {
				t.Errorf("in hand: %s, want %s", got, want)
			}
			if q := d.keys["default/a"]; !told && !q.tasks[0].initial {
				t.Error("it is not initial")
			}
			s.end()
		})
	}
}

// TestParkedIntoCollapsed: what the file has parked of a key ends within what was
// collapsed in memory behind it: of an object that came and went there only one
// of the two knows. Each object that is told is gone before the next one comes.
func TestParkedIntoCollapsed(t *testing.T) {
	s := stand(t, filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{JournalBytes: 1})
	d := s.d
	d.replay = walk{}
	s.change(cache.Added, "a")
	s.flush()
	for len(d.keys) == 0 && d.fill() {
	}
	d.returned(s.called("default/a"), errUnwilling)
	s.movedOut("default/a")
	var middle uint64
	for i := range aheadOfAck {
		s.change(cache.Deleted, "a")
		s.change(cache.Added, "a")
		if seq := s.flush(); i == aheadOfAck-4 {
			middle = seq
		}
	}
	last := s.d.inf.store.State().Seq
	for d.cursor < last {
		if !d.fillEntries(last) {
			t.Fatalf("at %d of %d", d.cursor, last)
		}
	}
	s.parkedTo("default/a", middle)
	q := d.keys["default/a"]
	d.mu.Lock()
	q.waiting = false // it is time
	d.schedule(q)
	d.mu.Unlock()
	for len(d.loads) > 0 && d.fillLoads(1) {
	}
	there := ""
	for _, x := range q.tasks {
		obj, err := x.entry.Object()
		if err != nil {
			t.Fatal(err)
		}
		switch uid := string(obj.(*corev1.ConfigMap).UID); {
		case there != "" && there != uid:
			t.Errorf("%s of %s while it is %s: %s", x.entry.Type, uid, there, s.inHand("default/a"))
			there = ""
		case x.entry.Type == cache.Deleted:
			there = ""
		default:
			there = uid
		}
	}
	if there != string(s.uids["a"]) {
		t.Errorf("at last it is %s, not %s: %s", there, s.uids["a"], s.inHand("default/a"))
	}
	s.end()
}

// TestParkedBehindWhatIsShown: an update of an object that is still to be shown
// does not come in the place of that.
func TestParkedBehindWhatIsShown(t *testing.T) {
	s := stand(t, filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{JournalBytes: 1})
	d := s.d
	s.change(cache.Added, "a")
	shown := s.flush()
	for len(d.keys) == 0 && d.fill() {
	}
	if d.cursor != shown {
		t.Fatalf("at %d of %d", d.cursor, shown)
	}
	s.change(cache.Updated, "a")
	s.parkedTo("default/a", s.flush())
	s.unparkAll()
	if got, want := s.inHand("default/a"), fmt.Sprintf("Added 1, Updated %d", s.rvOf["a"]); got != want {
		t.Errorf("in hand: %s, want %s", got, want)
	}
	s.end()
}
