package boltstore

import (
	"testing"

	"k8s.io/client-go/tools/cache"
)

// TestNewSourceIsOneCommit: the first claim of a source writes once, whatever indices it has.
// Programs claim many sources one after the other, and each commit waits for the disk. The
// indices are complete, also in the next life.
func TestNewSourceIsOneCommit(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{ObjectMemory: -1})
	before := db.Stats().Transactions.Count()
	s := claimTest(t, db, Claim{Indexers: indexers, IndexVersions: map[string]string{"words": "1"}})
	if n := db.Stats().Transactions.Count() - before; n != 1 {
		t.Errorf("%d transactions", n)
	}
	if err := s.Add(configMap("ns", "a", 1, map[string]string{"words": "x"})); err != nil {
		t.Fatal(err)
	}
	closeTest(t, db)
	db = openTest(t, path, Options{ObjectMemory: -1})
	before = db.Stats().Transactions.Count()
	s = claimTest(t, db, Claim{Indexers: indexers, IndexVersions: map[string]string{"words": "1"}})
	for name, value := range map[string]string{"words": "x", cache.NamespaceIndex: "ns"} {
		if keys, err := s.IndexKeys(name, value); err != nil || len(keys) != 1 || !s.indexing().built(s.metaNow(), name) {
			t.Errorf("%s: %v %v", name, keys, err)
		}
	}
	if n := db.Stats().Transactions.Count() - before; n != 0 {
		t.Errorf("%d transactions in the next life", n)
	}
	closeTest(t, db)
}
