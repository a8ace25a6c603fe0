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

// TestNotesOfANewSource: what is noted of a new source before its first list, its scope and
// its server, is written with the list, or with an own write before it, and not on its own.
// The last note counts. The next life knows it, and writes such notes at once.
func TestNotesOfANewSource(t *testing.T) {
	for name, c := range map[string]struct {
		own, staged bool // an own write comes first; the list has several pages
	}{"small": {}, "large": {staged: true}, "own write": {own: true}} {
		t.Run(name, func(t *testing.T) {
			path := testPath(t)
			db := openTest(t, path, Options{})
			s := claimTest(t, db, Claim{})
			before := db.Stats().Transactions.Count()
			must(t, s.SetServer(listing.Server{Address: "s1", ClusterUID: "c1", CA: "ca1"}))
			must(t, s.SetServer(listing.Server{Address: "s2", ClusterUID: "c2", Other: true}))
			must(t, s.Describe(Description{Scope: ScopeCluster}))
			must(t, s.Describe(Description{Scope: ScopeNamespaced}))
			if n := db.Stats().Transactions.Count() - before; n != 0 {
				t.Errorf("%d transactions for notes", n)
			}
			known := func(when string, st State) {
				t.Helper()
				if st.Scope != ScopeNamespaced || st.Server != "s2" || st.ClusterUID != "c2" || st.ServerCA != "" {
					t.Errorf("%s: scope %q, server %q, cluster %q, CA %q", when, st.Scope, st.Server, st.ClusterUID, st.ServerCA)
				}
			}
			if c.own {
				must(t, s.Add(configMap("ns", "own", 1, nil)))
				known("after an own write", stateIn(t, db))
			}
			page := 100
			if c.staged {
				page = 2
			}
			relist(t, s, "100", RelistOptions{}, listed(5).list(), page)
			known("after the list", stateIn(t, db))
			closeTest(t, db)
			db = openTest(t, path, Options{})
			s = claimTest(t, db, Claim{})
			known("in the next life", stateIn(t, db))
			must(t, s.Describe(Description{Scope: ScopeCluster}))
			must(t, s.SetServer(listing.Server{Address: "s3"}))
			if st := stateIn(t, db); st.Server != "s3" || s.metaNow().Scope != ScopeCluster {
				t.Errorf("a listed source: server %q, scope %q", st.Server, s.metaNow().Scope)
			}
			closeTest(t, db)
			if err := s.Describe(Description{Scope: ScopeNamespaced}); !errors.Is(err, ErrClosed) {
				t.Errorf("after the end: %v", err)
			}
		})
	}
}
