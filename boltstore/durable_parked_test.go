package boltstore

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/index"
)

// TestParkKey: entries of a key that several commits park tell the same as the entries
// themselves.
func TestParkKey(t *testing.T) {
	added := func(seq uint64, next string) numbered {
		return numbered{seq, format.Draft{Type: cache.Added, Key: "ns/a", Next: []byte(next)}}
	}
	updated := func(seq uint64, prev, next string) numbered {
		return numbered{seq, format.Draft{Type: cache.Updated, Key: "ns/a", Next: []byte(next), Prev: format.DiffOf([]byte(next), []byte(prev))}}
	}
	deleted := func(seq uint64, final string) numbered {
		return numbered{seq, format.Draft{Type: cache.Deleted, Key: "ns/a", Next: []byte(final)}}
	}
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	for name, c := range map[string]struct {
		parked [][]numbered
		want   string
	}{
		"the object that was shown, after a change to it": {
			[][]numbered{{updated(205, "old", "new")}, {added(125, "old")}, {updated(205, "old", "new")}},
			"Added new"},
		"shown before any entry, and changed": {
			[][]numbered{{added(0, "old"), updated(1, "old", "new")}, {added(0, "old")}},
			"Added new"},
		"collapsed in memory, to one seq": {
			[][]numbered{{deleted(74, "a"), deleted(74, "b"), added(74, "c")}},
			"Deleted a, Deleted b, Added c"},
		"collapsed in memory, behind what is there": {
			[][]numbered{{updated(60, "a1", "a2")}, {deleted(74, "a3"), added(74, "b")}, {deleted(74, "a3"), added(74, "b")}, {updated(75, "b", "b2")}},
			"Deleted a3, Added b2"},
		"what is there already": {
			[][]numbered{{updated(1, "a", "b"), updated(2, "b", "c")}, {updated(1, "a", "b")}, {updated(2, "b", "c"), deleted(3, "d")}},
			"Deleted d"},
	} {
		t.Run(name, func(t *testing.T) {
			err := s.updateMeta(func(src sourceTx, _ *sourceMeta) error {
				b, err := src.createParked("test")
				if err != nil {
					return err
				}
				st := &handlerState{}
				var last uint64
				for _, entries := range c.parked {
					if err := st.parkKey(b, "ns/a", 0, entries...); err != nil {
						return err
					}
					last = max(last, entries[len(entries)-1].seq)
				}
				v := b.Get(index.AppendKey(nil, "ns/a"))
				p, err := parseParked(v)
				if err != nil {
					return err
				}
				got := ""
				for i, d := range p.drafts(0) {
					if i > 0 {
						got += ", "
					}
					got += fmt.Sprintf("%s %s", d.Type, d.Next)
				}
				if got != c.want || p.Last != last {
					t.Errorf("%s at %d, want %s at %d", got, p.Last, c.want, last)
				}
				if st.Parked != 1 || st.ParkedBytes != uint64(len(v)) {
					t.Errorf("%+v, %d bytes", st, len(v))
				}
				return src.dropParked("test")
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	s.Release()
}

// TestSettleParked: acknowledged entries of a key are removed, and later ones stay.
func TestSettleParked(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	err := s.updateMeta(func(src sourceTx, _ *sourceMeta) error {
		b, err := src.createParked("test")
		if err != nil {
			return err
		}
		st := &handlerState{}
		entry := func(seq uint64, typ cache.DeltaType, next string) numbered {
			return numbered{seq, format.Draft{Type: typ, Key: "ns/a", Next: []byte(next)}}
		}
		if err := st.parkKey(b, "ns/a", 0, entry(3, cache.Deleted, "x"), entry(4, cache.Added, "y"), entry(5, cache.Deleted, "y"), entry(6, cache.Added, "z")); err != nil {
			return err
		}
		k := index.AppendKey(nil, "ns/a")
		for _, c := range []struct {
			acked uint64
			want  string
		}{{2, "Deleted x 3, Deleted y 5, Added z 6"}, {4, "Deleted y 5, Added z 6"}, {5, "Added z 6"}} {
			if err := st.settle(b, map[string]uint64{"ns/a": c.acked}); err != nil {
				return err
			}
			p, err := parseParked(b.Get(k))
			if err != nil {
				return err
			}
			var got []string
			for _, d := range p.drafts(0) {
				got = append(got, fmt.Sprintf("%s %s %d", d.Type, d.Next, d.seq))
			}
			if s := strings.Join(got, ", "); s != c.want || st.Parked != 1 || st.ParkedBytes != uint64(len(b.Get(k))) {
				t.Errorf("acknowledged up to %d: %s, %+v", c.acked, s, st)
			}
		}
		if err := st.settle(b, map[string]uint64{"ns/a": 6}); err != nil || b.Get(k) != nil || st.Parked != 0 || st.ParkedBytes != 0 {
			t.Errorf("%+v %v", st, err)
		}
		return src.dropParked("test")
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Release()
}

// TestParkedGone: of objects that came and went under one key, the ones that the handler
// may have been told, even during the commit, are kept. Some of many others are left out. A
// disk that failed may have kept a handler's last position out of the file.
func TestParkedGone(t *testing.T) {
	t.Run("in the file", func(t *testing.T) { testParkedGone(t, nil) })
	t.Run("not written", func(t *testing.T) { testParkedGone(t, func(_ *Claimed, h *Handler) error { return h.Release() }) })
	t.Run("not removed", func(t *testing.T) {
		testParkedGone(t, func(s *Claimed, h *Handler) error { return s.RemoveHandler(h.name) })
	})
}

// testParkedGone ends the registration with lost, if that is not nil, while the disk fails.
func testParkedGone(t *testing.T, lost func(*Claimed, *Handler) error) {
	db := openTest(t, testPath(t), Options{JournalBytes: 1})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Attach(p)
	h, pos := claimHandler(t, s, "test")
	const objects = 40
	reach := uint64(12 * 2) // each comes and goes
	if pos.p.Cursor = 1; lost == nil {
		pos.p.Reach = reach
	}
	rv := 0
	put := func(typ cache.DeltaType, name string) {
		t.Helper()
		rv++
		c, err := s.Prepare(typ, configMap("a", name, rv, nil))
		if err != nil {
			t.Fatal(err)
		}
		p.put(&Batch{Changes: []*Change{c}, ResourceVersion: fmt.Sprint(rv)})
		s.wake(false)
		p.wait(t)
	}
	// The journal is kept for others until all is there.
	for i := range objects {
		if lost != nil && uint64(2*i) == reach {
			db.h.setHook(func(*bolt.Tx) error { return syscall.ENOSPC })
			h.Changed() // it was told all until now
			if err := lost(s, h); !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			db.h.setHook(nil)
		}
		put(cache.Added, "one")
		put(cache.Deleted, "one")
	}
	s.SetTold(2 * objects)
	for i := 0; handlerState1(t, s).Mark < 2*objects; i++ {
		if i > 2*objects {
			t.Fatalf("%+v", handlerState1(t, s))
		}
		put(cache.Updated, "tick")
	}
	if lost != nil {
		h, _ = claimHandler(t, s, "test")
	}
	page, err := h.ParkedOf([]string{"a/one"}, 0)
	if err != nil || len(page.Keys) != 1 {
		t.Fatalf("%+v %v", page, err)
	}
	gone := map[string]bool{}
	for _, e := range page.Entries[0] {
		if e.Type != cache.Deleted {
			t.Fatalf("%+v", e)
		}
		obj, err := e.Object()
		if err != nil {
			t.Fatal(err)
		}
		gone[obj.(*corev1.ConfigMap).ResourceVersion] = true
	}
	for i := 1; i <= objects; i++ {
		if told := uint64(2*i-1) <= reach; told && !gone[fmt.Sprint(2*i)] {
			t.Errorf("the delete of object %d is missing in %v", i, gone)
		}
	}
	if !gone[fmt.Sprint(2*objects)] || lost == nil && len(gone) > 12+maxGone {
		t.Errorf("%d deletes are kept: %v", len(gone), gone)
	}
}
