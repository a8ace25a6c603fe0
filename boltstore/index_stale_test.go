package boltstore

import (
	"errors"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// TestStaleIndexEntry: an index entry without a matching value in the record, as an old
// page brings back, is damage. The object is not served under that value, but is under
// its own.
func TestStaleIndexEntry(t *testing.T) {
	db, err := Open(testPath(t), Options{ObjectMemory: -1}) // it ends damaged
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	s := claimTest(t, db, Claim{Indexers: indexers})
	for i, name := range []string{"one", "two"} {
		if err := s.Add(configMap("a", name, i+1, map[string]string{"words": "new"})); err != nil {
			t.Fatal(err)
		}
	}
	write := func(change func(b *layout.Entries) error) {
		t.Helper()
		err := db.h.update(func(tx *bolt.Tx) error {
			src, _ := db.h.source(tx, s.id)
			return change(src.contents().Indices.Open("words"))
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	if objs, err := s.ByIndex("words", "old"); err != nil || len(objs) > 0 {
		t.Fatal(objs, err)
	}
	write(func(b *layout.Entries) error { return b.Bucket.Put(index.AppendEntry(nil, "old", "a/one"), nil) })
	for name, found := range map[string]func(value string) ([]any, error){
		"ByIndex": func(value string) ([]any, error) { return s.ByIndex("words", value) },
	} {
		objs, err := found("old")
		for _, o := range objs {
			if o != nil {
				t.Errorf("%s: served under a value that it has not: %v", name, o)
			}
		}
		if !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		if s.Err() == nil {
			t.Errorf("%s: the source is not degraded", name)
		}
		if objs, err := found("new"); err != nil || len(objs) != 2 {
			t.Errorf("%s: %v %v", name, objs, err)
		}
	}
}
