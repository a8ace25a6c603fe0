package boltstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
)

// TestIndexBuiltWhileListed: an index that was added before a large list, and is built
// in the file while it is read, is complete in the file after the list, too. Otherwise
// readers would look at all objects until the next claim.
func TestIndexBuiltWhileListed(t *testing.T) {
	f := newResidentTest(t, Options{maxCommitBytes: 1}, 20)
	loadedInMemory(t, f.s)
	f.s.indices.change(func(fns cache.Indexers) { fns["late"] = lateIndex }) // as AddIndexers begins
	f.set(3, "y")
	r, err := f.s.Upstream.BeginRelist(RelistOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for page := range slices.Chunk(f.srv.list(), 5) {
		if err := r.Page(page); err != nil {
			t.Fatal(err)
		}
		if r.found.spilled && !f.s.indices.built(f.s.metaNow(), "late") {
			f.s.builder.later() // as it goes on
			waitBuilt(t, f.s, "late")
		}
	}
	if _, err := r.Commit(fmt.Sprint(f.rv), time.Now()); err != nil {
		t.Fatal(err)
	}
	if !f.s.indices.built(f.s.metaNow(), "late") {
		t.Error("the index is not complete in the file")
	}
	if !loadedInMemory(t, f.s).has("late") {
		t.Error("memory does not have the index")
	}
	for n := range 20 {
		if keys, err := f.s.IndexKeys("late", fmt.Sprintf("last%02d", n)); err != nil || len(keys) != 1 {
			t.Errorf("%d: %v %v", n, keys, err)
		}
	}
	f.same()
}
