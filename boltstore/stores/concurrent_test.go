package stores_test

import (
	"fmt"
	"sync"
	"testing"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/stores"
)

// TestReplaceBesideWrites: entries stored before a Replace are gone after it, even if
// both are under way at the same time. client-go's store, which has one lock, behaves in
// the same way.
func TestReplaceBesideWrites(t *testing.T) {
	for name, s := range map[string]cache.ThreadSafeStore{
		"client-go": cache.NewThreadSafeStore(cache.Indexers{}, cache.Indices{}),
		"from the file": must(stores.NewThreadSafeStore(claim(t,
			open(t, newPath(t), boltstore.Options{ObjectMemory: -1})), func(err error) { t.Error(err) }))(t),
		"in memory": must(stores.NewThreadSafeStore(claim(t,
			open(t, newPath(t), boltstore.Options{ObjectMemory: 1 << 20})), func(err error) { t.Error(err) }))(t),
	} {
		t.Run(name, func(t *testing.T) {
			for round := range 200 {
				is := fmt.Sprint("new", round)
				var wg sync.WaitGroup
				first := false // the Add came before the Replace
				wg.Go(func() {
					s.Add("added", &token{"added", "v"})
					_, replaced := s.Get(is)
					first = !replaced
				})
				wg.Go(func() { s.Replace(map[string]any{is: &token{is, "v"}}, "1") })
				wg.Wait()
				if _, there := s.Get("added"); there && first {
					t.Fatalf("round %d: it was there before the Replace, and is afterwards", round)
				}
			}
		})
	}
}
