package boltstore

import (
	"errors"
	"fmt"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestHealWhole: bbolt trips over a page of an index, and salvage saves the source as it
// was. The read that met the damage reports it, and later ones have everything. The
// source still counts as damaged until a relist, which finds nothing to write.
func TestHealWhole(t *testing.T) {
	db, s, srv := healable(t)
	ruin(t, db.path, rootPage(t, db, func(m *sourceMeta, src sourceTx) *bolt.Bucket {
		return src.contents().Indices.Open("words").Bucket
	}))
	if objs, err := s.ByIndex("words", "1"); !errors.Is(err, ErrDamaged) {
		t.Fatalf("the damage was not met: %d objects, %v", len(objs), err)
	}
	if n := db.replaced.Load(); n != 1 || s.State().Degraded != "" {
		t.Fatalf("%d healings; degraded: %q", n, s.State().Degraded)
	}
	objs, err := s.ByIndex("words", "1")
	if err != nil || len(objs) != 133 {
		t.Errorf("%d objects, %v", len(objs), err)
	}
	sameObjects(t, "healed", srv.anys(), s.List())
	if !errors.Is(s.Err(), ErrDamaged) {
		t.Error("no relist is due:", s.Err())
	}
	before := s.State().Seq
	relist(t, s, "500", RelistOptions{}, srv.list(), 50)
	if seq := s.State().Seq; s.Err() != nil || seq != before {
		t.Errorf("%v; the relist wrote %d entries", s.Err(), seq-before)
	}
}

// TestListMeetsDamage: methods that cannot return an error answer with the salvaged
// objects, even the call that meets the damage. An empty answer would look as if there
// were no objects.
func TestListMeetsDamage(t *testing.T) {
	for name, read := range map[string]func(s *Claimed) int{
		"List":                func(s *Claimed) int { return len(s.List()) },
		"ListKeys":            func(s *Claimed) int { return len(s.ListKeys()) },
		"ListIndexFuncValues": func(s *Claimed) int { return len(s.ListIndexFuncValues("words")) * 100 },
	} {
		t.Run(name, func(t *testing.T) {
			db, s, _ := healable(t)
			page := itemPages(t, db)[1]
			if name == "ListIndexFuncValues" {
				page = rootPage(t, db, func(m *sourceMeta, src sourceTx) *bolt.Bucket {
					return src.contents().Indices.Open("words").Bucket
				})
			}
			ruin(t, db.path, page)
			if n := read(s); n < 300 || db.replaced.Load() != 1 || s.Err() == nil {
				t.Errorf("%d of 400, %d healings, %v", n, db.replaced.Load(), s.Err())
			}
		})
	}
}

// healable opens a file with 400 listed objects.
func healable(t *testing.T) (*DB, *Claimed, server) {
	t.Helper()
	return healableAt(t, testPath(t), Options{ObjectMemory: -1})
}

func healableAt(t *testing.T, path string, o Options) (*DB, *Claimed, server) {
	t.Helper()
	db := openTest(t, path, o)
	s := claimTest(t, db, Claim{Indexers: indexers})
	srv := server{}
	for i := range 400 {
		srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1, map[string]string{"words": fmt.Sprint(i % 3)}))
	}
	relist(t, s, "500", RelistOptions{}, srv.list(), 50)
	return db, s, srv
}

// rootPage is the page at the root of a bucket.
func rootPage(t *testing.T, db *DB, of func(m *sourceMeta, src sourceTx) *bolt.Bucket) (page int) {
	t.Helper()
	err := db.h.view(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, configMaps.ID())
		m, err := src.meta()
		if err == nil {
			page = int(of(m, src).Root())
		}
		return err
	})
	if err != nil || page == 0 {
		t.Fatal(page, err)
	}
	return page
}
