package boltstore

import (
	"testing"
)

// TestIndexThatTheProgramLacks: the file keeps an index that the program does not use.
// Calls of it answer as client-go's: the program has no such index.
func TestIndexThatTheProgramLacks(t *testing.T) {
	path, without := testPath(t), failing(&[]string{})
	delete(without.Indexers, "odd")
	db := openTest(t, path, Options{})
	must(t, claimTest(t, db, failing(&[]string{})).Add(configMap("ns", "a", 1, map[string]string{"words": "x"})))
	closeTest(t, db)
	for _, memory := range []int64{-1, 8 << 20} {
		db = openTest(t, path, Options{ObjectMemory: memory})
		s := claimTest(t, db, without)
		if memory > 0 {
			loadedInMemory(t, s)
		}
		if values := s.ListIndexFuncValues("odd"); values == nil || len(values) > 0 {
			t.Errorf("ListIndexFuncValues: %#v", values)
		}
		if keys, err := s.IndexKeys("words", "x"); err != nil || len(keys) != 1 {
			t.Errorf("IndexKeys of another: %v, %v", keys, err)
		}
		v, err := db.View(configMaps)
		must(t, err)
		if values := v.ListIndexFuncValues("odd"); len(values) != 1 {
			t.Errorf("a view, which knows what the file has: %v", values)
		}
		if keys, err := v.IndexKeys("odd", "v1"); err != nil || len(keys) != 1 {
			t.Errorf("IndexKeys of a view: %v, %v", keys, err)
		}
		closeTest(t, db)
	}
}
