package informer

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/kubewake/kubewake/boltstore"
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
