package durable

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestReloadedBehindInitial: the file has a newer state of an object than the one that
// the replay has shown, which waits behind parked entries. The older state is not told
// after the newer one.
func TestReloadedBehindInitial(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wake.db")
	s := stand(t, path, boltstore.Options{})
	s.change(cache.Added, "a")
	s.flush()
	s.end()

	s = stand(t, path, boltstore.Options{JournalBytes: 1})
	s.rv = 1
	d := s.d
	s.change(cache.Deleted, "a")
	last := s.flush()
	s.takeIn(last)
	q := d.queues.ofKey["default/a"]
	d.o.MaxPending = 1
	d.queues.returned(s.called("default/a"), errors.New("no"))
	d.mu.Lock()
	d.block()
	d.mu.Unlock()
	parkedTo := func(seq uint64) {
		t.Helper()
		s.store.SetTold(s.store.State().Seq)
		eventually(t, "parked", func() bool {
			s.change(cache.Added, fmt.Sprint("tick", s.rv))
			s.flush()
			p, err := d.claim.ParkedOf([]string{"default/a"}, 0)
			d.mu.Lock()
			defer d.mu.Unlock()
			return err == nil && len(p.Keys) == 1 && p.Last[0] >= seq && q.tasks[0].entry == nil
		})
	}
	parkedTo(last)
	s.change(cache.Added, "a")
	s.flush()
	page, err := s.store.ReplayOf([]string{"default/a"})
	if err != nil || len(page.Entries) != 1 {
		t.Fatalf("%+v %v", page, err)
	}
	d.mu.Lock()
	d.pos.cursor, d.replay.walk = page.Seq, walk{begun: true}
	d.queues.add("default/a", &task{entry: page.Entries[0], initial: true, last: page.Seq})
	d.mu.Unlock()
	s.change(cache.Updated, "a")
	last = s.flush()
	parkedTo(last)
	d.mu.Lock()
	q.waiting = false
	d.queues.schedule(q)
	d.mu.Unlock()
	s.load()
	got := ""
	for _, x := range q.tasks {
		o, err := x.entry.Object()
		if err != nil {
			t.Fatal(err)
		}
		got += fmt.Sprintf("%s %s, ", x.entry.Type, o.(*corev1.ConfigMap).ResourceVersion)
	}
	if want := fmt.Sprintf("Deleted 2, Added %d, ", s.rvOf["a"]); got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	s.end()
}

// TestParkedTwice: the file parks more entries of a key while its earlier parked ones are
// in hand, told or acknowledged: each delete comes once, before the object that took the
// key.
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
			s.fillUntil(func() bool { return len(s.d.queues.ofKey) > 0 })
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
				s.d.queues.returned(s.called("default/a"), err)
			}
			cursor, settled := s.swap(s.d.pos.cursor, map[string]uint64{}) // a commit that has asked before knows nothing of it
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

// TestParkedIntoCollapsed: a key's parked entries in the file end within the range that
// was collapsed in memory behind them, so only one of the two knows of an object that
// came and went there. Each object's delete is told before the next object comes.
func TestParkedIntoCollapsed(t *testing.T) {
	s := stand(t, filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{JournalBytes: 1})
	d := s.d
	d.replay.walk = walk{}
	s.change(cache.Added, "a")
	s.flush()
	s.fillUntil(func() bool { return len(s.d.queues.ofKey) > 0 })
	d.queues.returned(s.called("default/a"), errUnwilling)
	s.movedOut("default/a")
	var middle uint64
	for i := range AheadOfAck {
		s.change(cache.Deleted, "a")
		s.change(cache.Added, "a")
		if seq := s.flush(); i == AheadOfAck-4 {
			middle = seq
		}
	}
	last := s.d.host.Store.State().Seq
	s.takeIn(last)
	s.parkedTo("default/a", middle)
	q := d.queues.ofKey["default/a"]
	d.mu.Lock()
	q.waiting = false // it is time
	d.queues.schedule(q)
	d.mu.Unlock()
	s.load()
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
