package boltstore

import (
	"errors"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/listing"
)

// TestNewSourceIsOneCommit: the first claim of a source writes once, whatever indices it has.
// Programs claim many sources one after the other, and each commit waits for the disk. The
// indices are complete, also in the next life.
func TestNewSourceIsOneCommit(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{ObjectMemory: -1})
	before := db.Stats().Transactions.Count()
	s := claimTest(t, db, Claim{Indexers: indexers})
	if n := db.Stats().Transactions.Count() - before; n != 1 {
		t.Errorf("%d transactions", n)
	}
	if err := s.Add(configMap("ns", "a", 1, map[string]string{"words": "x"})); err != nil {
		t.Fatal(err)
	}
	closeTest(t, db)
	db = openTest(t, path, Options{ObjectMemory: -1})
	before = db.Stats().Transactions.Count()
	s = claimTest(t, db, Claim{Indexers: indexers})
	for name, value := range map[string]string{"words": "x", cache.NamespaceIndex: "ns"} {
		if keys, err := s.IndexKeys(name, value); err != nil || len(keys) != 1 || !s.indices.built(s.metaNow(), name) {
			t.Errorf("%s: %v %v", name, keys, err)
		}
	}
	if n := db.Stats().Transactions.Count() - before; n != 0 {
		t.Errorf("%d transactions in the next life", n)
	}
	closeTest(t, db)
}

// TestScopeOfANewSource: the scope of a source that has not been listed is written with its
// next commit, and not on its own. The last one counts. A listed source's is written at once.
func TestScopeOfANewSource(t *testing.T) {
	known := func(t *testing.T, db *DB, when string) {
		t.Helper()
		if st := stateIn(t, db); st.Scope != ScopeNamespaced {
			t.Errorf("%s: scope %q", when, st.Scope)
		}
	}
	for name, next := range map[string]func(t *testing.T, s *Claimed){
		"small list": func(t *testing.T, s *Claimed) { relist(t, s, "100", RelistOptions{}, nil, 1) },
		"large list": func(t *testing.T, s *Claimed) {
			relist(t, s, "100", RelistOptions{}, listed(5).list(), 2)
			relist(t, s, "101", RelistOptions{}, nil, 1) // objects would show the scope
		},
		"own write": func(t *testing.T, s *Claimed) {
			must(t, s.Add(configMap("ns", "own", 1, nil)))
			must(t, s.Delete(configMap("ns", "own", 1, nil)))
		},
		"server": func(t *testing.T, s *Claimed) {
			must(t, s.Upstream.WriteFacts(func(f *listing.Facts) { f.Server.Address = "s" }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := testPath(t)
			db := openTest(t, path, Options{})
			s := claimTest(t, db, Claim{})
			before := db.Stats().Transactions.Count()
			must(t, s.Describe(Description{Scope: ScopeCluster}))
			must(t, s.Describe(Description{Scope: ScopeNamespaced}))
			if n := db.Stats().Transactions.Count() - before; n != 0 {
				t.Errorf("%d transactions for a scope", n)
			}
			next(t, s)
			known(t, db, "after the next commit")
			relist(t, s, "102", RelistOptions{}, nil, 1)
			must(t, s.Describe(Description{Scope: ScopeCluster}))
			must(t, s.Describe(Description{Scope: ScopeNamespaced}))
			closeTest(t, db)
			if err := s.Describe(Description{Scope: ScopeCluster}); !errors.Is(err, ErrClosed) {
				t.Errorf("after the end: %v", err)
			}
			known(t, openTest(t, path, Options{}), "in the next life")
		})
	}
}
