package boltstore

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
)

// TestLateOwnWrite: an own write that comes after the server's delete of its object is
// not stored, in this life or the next. It is stored where nothing proves the delete.
func TestLateOwnWrite(t *testing.T) {
	other := func(f *ownTest, rv int) { f.event(cache.Updated, configMap("z", "other", rv, nil)) }
	gone := func(f *ownTest) {
		f.list(5, at(5, "x"))
		f.event(cache.Deleted, at(8, "x"))
	}
	update := func(rv int) func(s *Claimed) error {
		return func(s *Claimed) error { return s.Update(at(rv, "y")) }
	}
	for _, tc := range []struct {
		name   string
		server func(f *ownTest) // what the server has shown
		own    func(s *Claimed) error
		read   string
	}{
		{"an update after the delete", gone, update(7), "nothing"},
		{"the answer to the delete", gone, update(8), "nothing"},
		{"an add", gone, func(s *Claimed) error { return s.Add(at(6, "y")) }, "nothing"},
		{"a transaction", gone, func(s *Claimed) error {
			if err := s.Transaction(cache.Transaction{Type: cache.TransactionTypeAdd, Object: at(7, "y")}); err != nil {
				return err
			}
			return nil
		}, "nothing"},
		{"the whole contents", gone, func(s *Claimed) error { return s.Replace([]any{at(7, "y"), configMap("z", "other", 1, nil)}, "30") }, "nothing"},
		{"an object that came and went", func(f *ownTest) {
			f.list(5)
			f.event(cache.Added, at(6, "y"))
			f.event(cache.Deleted, at(7, "y"))
		}, update(6), "nothing"},
		{"a list has shown the delete", func(f *ownTest) {
			f.list(5, at(5, "x"))
			f.list(8)
		}, update(7), "nothing"},
		{"a bookmark has passed it", func(f *ownTest) {
			f.list(5)
			f.p.put(&Batch{ResourceVersion: "20"})
			f.s.wake(true)
			f.p.wait(f.t)
			other(f, 21)
		}, update(12), "nothing"},
		{"another object under the key, which is gone, too", func(f *ownTest) {
			f.list(5, at(5, "x"))
			f.event(cache.Deleted, at(6, "x"))
			f.event(cache.Added, twin(7, "z"))
			f.event(cache.Deleted, twin(8, "z"))
		}, update(6), "nothing"},

		{"a create after the delete", gone, update(9), "9y"},
		{"no version", gone, func(s *Claimed) error { return s.Update(at(0, "y")) }, "0y"},
		{"a version that cannot be compared", gone, func(s *Claimed) error {
			o := at(7, "y")
			o.ResourceVersion = "v"
			return s.Update(o)
		}, "vy"},
		{"the server has it", func(f *ownTest) { f.list(5, at(5, "x")); other(f, 9) }, update(7), "7y"},
		{"the program has deleted it", func(f *ownTest) {
			f.list(5, at(5, "x"))
			other(f, 9)
			f.must(f.s.Delete(at(5, "x")))
		}, update(7), "7y"},
		{"the object could not be stored", func(f *ownTest) {
			f.list(5)
			o := at(7, "y")
			f.p.put(&Batch{Changes: []*Change{f.s.Unstored(o, errRefused)}, ResourceVersion: "7"})
			f.s.wake(true)
			f.p.wait(f.t)
			other(f, 9)
		}, update(7), "7y"},
		{"an object of unknown key could not be stored", func(f *ownTest) {
			f.list(5)
			f.p.put(&Batch{Changes: []*Change{f.s.Unstored("no object", errRefused)}, ResourceVersion: "9"})
			f.s.wake(true)
			f.p.wait(f.t)
		}, update(7), "7y"},
		{"the server was restored", func(f *ownTest) { gone(f); f.must(f.s.NoteRestored()) }, update(7), "7y"},
		{"the program has stored it", func(f *ownTest) {
			gone(f)
			f.must(f.s.Update(at(9, "w")))
			other(f, 20)
		}, update(12), "12y"},
		{"no informer feeds it any more", func(f *ownTest) {
			gone(f)
			f.s.Release()
			f.s = claimTest(f.t, f.db, Claim{Indexers: indexers})
		}, update(7), "7y"},
		{"damage", func(f *ownTest) { gone(f); f.s.damaged(ErrDamaged) }, update(7), "7y"},
		{"the contents were purged", func(f *ownTest) {
			gone(f)
			r, err := f.s.BeginRelist(RelistOptions{})
			f.must(err)
			_, err = r.Commit("", time.Unix(0, 0))
			f.must(err)
		}, update(7), "7y"},
		{"versions stand", func(f *ownTest) { gone(f); f.s.NoteStands() }, update(7), "7y"},
		{"versions are not known to move", func(f *ownTest) { f.list(42) }, update(7), "7y"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newOwnTest(t, Options{Window: time.Nanosecond, Durability: DurabilityProcess})
			tc.server(f)
			bases := f.bases()
			f.must(tc.own(f.s))
			if got := f.read(); got != tc.read {
				t.Fatalf("%s is read, and should be %s", got, tc.read)
			}
			if tc.read != "nothing" {
				return
			}
			if f.bases() != bases {
				t.Fatalf("%d bases are kept", f.bases())
			}
			if r, err := f.db.Check(); err != nil || !r.Sound() {
				t.Fatalf("%+v %v", r, err)
			}
			closeTest(t, f.db)
			f.open()
			if got := f.read(); got != "nothing" {
				t.Fatalf("%s is read after a restart", got)
			}
			f.event(cache.Added, at(30, "new"))
			if got := f.read(); got != "30new" {
				t.Fatalf("%s is read at last", got)
			}
		})
	}
}

// TestOwnWritesBesideDeletes: an own write and the server's delete of its object come in
// any order. Nothing is left once both have come.
func TestOwnWritesBesideDeletes(t *testing.T) {
	f := newOwnTest(t, Options{Window: time.Nanosecond, Durability: DurabilityProcess})
	f.list(1)
	for i := range 200 {
		rv := 10 * (i + 1)
		done := make(chan error)
		f.event(cache.Added, at(rv, "x"))
		go func() { done <- f.s.Update(at(rv+1, "y")) }()
		c, err := f.s.Prepare(cache.Deleted, at(rv+2, "y"))
		f.must(err)
		f.p.put(&Batch{Changes: []*Change{c}, ResourceVersion: fmt.Sprint(rv + 2)})
		f.s.wake(true)
		f.must(<-done)
		f.p.wait(t)
		if got := f.read(); got != "nothing" || f.bases() != 0 {
			t.Fatalf("round %d: %s is read, %d bases", i, got, f.bases())
		}
	}
}
