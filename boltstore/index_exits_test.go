package boltstore

import (
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestIndexFunctionThatExits: an index function that ends its goroutine, as t.FailNow
// does, has failed, whether it is called for a change, for all objects or once more.
func TestIndexFunctionThatExits(t *testing.T) {
	exits := cache.Indexers{"exits": func(any) ([]string, error) { runtime.Goexit(); return nil, nil }}
	f := newFedTest(t, Options{})
	f.list(5)
	c, err := f.s.Feed.Prepare(cache.Added, at(7, "x"))
	f.must(err)
	f.s.indices.change(func(fns cache.Indexers) { fns["exits"] = exits["exits"] })
	f.p.put(&Batch{Changes: []*Change{c}, ResourceVersion: "7"})
	f.s.wake(true)
	f.p.wait(t)
	if n := f.s.State().Unindexed; n == 0 {
		t.Fatal("no failure is counted")
	}
	f.s.builder.remove(exits)
	indexAgain(t, f.s)
	if got := f.read(); got != "7x" {
		t.Fatal(got)
	}

	f.s.indices.change(func(fns cache.Indexers) { fns["exits"] = exits["exits"] })
	f.must(f.s.builder.now(exits))
	indexAgain(t, f.s)
	if n := f.s.State().Unindexed; n < 2 {
		t.Fatal(n, " failures are counted")
	}
	f.s.builder.remove(exits)
	f.must(f.s.AddIndexers(cache.Indexers{"late": indexers["words"]}))
}

// TestIndexFunctionThatExitsInMemory: the same holds where an index is added to objects in
// memory.
func TestIndexFunctionThatExitsInMemory(t *testing.T) {
	f := newResidentTest(t, Options{}, 40)
	loadedInMemory(t, f.s)
	exits := func(o any) ([]string, error) {
		if name := o.(*corev1.ConfigMap).Name; name >= "cm020" {
			runtime.Goexit()
		}
		return []string{"low"}, nil
	}
	err := errors.New("the caller's goroutine has ended")
	apart(func() { err = f.s.AddIndexers(cache.Indexers{"exits": exits}) })
	if err != nil {
		t.Error("AddIndexers: ", err)
	}
	check := func(when string) {
		t.Helper()
		if !apart(func() {
			keys, err := f.s.IndexKeys("exits", "low")
			if err != nil || len(keys) != 20 {
				t.Errorf("%s: %v %v", when, keys, err)
			}
		}) {
			t.Errorf("%s: the reader's goroutine has ended", when)
		}
	}
	check("added")
	f.event(99, "x")
	waitBuilt(t, f.s, "exits")
	check("with the file's index")
	if n := f.s.State().Unindexed; n < 21 {
		t.Error(n, " failures are counted")
	}
	loadedInMemory(t, f.s)
	check("loaded again")
	f.same()
}

// TestIndexFunctionThatWaits: an index function that is added to objects in memory may wait
// for a commit to the file, as one that needs another informer's objects does.
func TestIndexFunctionThatWaits(t *testing.T) {
	f := newResidentTest(t, Options{}, 40)
	loadedInMemory(t, f.s)
	other := claimTest(t, f.db, Claim{Source: inNamespace("other")})
	p := &testProducer{}
	other.Feed.Attach(p)
	var asked atomic.Bool
	waits := func(o any) ([]string, error) {
		if asked.CompareAndSwap(false, true) {
			p.add(t, other, configMap("other", "a", 500, nil))
			f.p.add(t, f.s, f.set(7, "late")) // memory changes meanwhile
			for _, done := range []chan struct{}{p.done, f.p.done} {
				select {
				case <-done:
				case <-time.After(time.Minute):
					t.Error("nothing is committed while the function waits")
				}
			}
		}
		return indexers["words"](o)
	}
	if err := f.s.AddIndexers(cache.Indexers{"waits": waits}); err != nil {
		t.Fatal(err)
	}
	same := func(when string) {
		t.Helper()
		for _, value := range f.s.ListIndexFuncValues("words") {
			want, err := f.s.IndexKeys("words", value)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := f.s.IndexKeys("waits", value); err != nil || !slices.Equal(sorted(got), sorted(want)) {
				t.Errorf("%s: %s: %v %v, want %v", when, value, got, err, want)
			}
		}
	}
	waitBuilt(t, f.s, "waits")
	same("built")
	builtInMemory(f.s)
	same("in memory")
	f.same()
}
