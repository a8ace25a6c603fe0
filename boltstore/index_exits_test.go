package boltstore

import (
	"runtime"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// TestIndexFunctionThatExits: an index function that ends its goroutine, as t.FailNow
// does, has failed, whether it is called for a change, for all objects or once more.
func TestIndexFunctionThatExits(t *testing.T) {
	exits := cache.Indexers{"exits": func(any) ([]string, error) { runtime.Goexit(); return nil, nil }}
	f := newOwnTest(t, Options{})
	f.list(5)
	c, err := f.s.Prepare(cache.Added, at(7, "x"))
	f.must(err)
	f.s.indexing().change(func(fns cache.Indexers) { fns["exits"] = exits["exits"] })
	f.p.put(&Batch{Changes: []*Change{c}, ResourceVersion: "7"})
	f.s.wake(true)
	f.p.wait(t)
	if n := f.s.State().Unindexed; n != 1 {
		t.Fatal(n, " objects are noted")
	}
	f.s.indexing().remove(exits)
	f.must(f.s.indexing().reindexNoted())
	if got := f.read(); got != "7x" {
		t.Fatal(got)
	}

	f.s.indexing().change(func(fns cache.Indexers) { fns["exits"] = exits["exits"] })
	f.must(f.s.indexing().buildNow(exits))
	f.must(f.s.indexing().reindexNoted())
	if n := f.s.State().Unindexed; n != 2 {
		t.Fatal(n, " objects are noted")
	}
	f.s.indexing().remove(exits)
	f.must(f.s.AddIndexers(cache.Indexers{"late": indexers["words"]}))
}
