package boltstore

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

func lateIndex(o any) ([]string, error) {
	return []string{"last" + o.(*corev1.ConfigMap).Name[3:]}, nil
}

// TestResidentLosses: objects stay in memory as the last commit left them once the file is
// damaged. In the next life those that the file has lost are not served.
func TestResidentLosses(t *testing.T) {
	path := testPath(t)
	db, err := Open(path, Options{ObjectMemory: 8 << 20})
	must(t, err)
	s := claimTest(t, db, Claim{Indexers: indexers})
	var objs []runtime.Object
	for i := range 100 {
		objs = append(objs, configMap("ns", fmt.Sprint("x", i), i+1, nil))
	}
	relist(t, s, "200", RelistOptions{}, objs, 50)
	loadedInMemory(t, s)
	cut(t, path)
	returns(t, "write", func() {
		if err := db.h.update(func(*bolt.Tx) error { return nil }, nil); !errors.Is(err, ErrDamaged) {
			t.Error("write:", err)
		}
	})
	if _, err := s.Feed.ReadJournal(1); !errors.Is(err, ErrDamaged) || s.memory.shown() == nil {
		t.Error("in memory:", s.memory.shown() != nil, err)
	}
	serves(t, s, objs)
	s.Release()
	_ = db.Close()
	s = claimTest(t, openTest(t, path, Options{ObjectMemory: 8 << 20}), Claim{Indexers: indexers})
	if n := len(s.List()); n > 0 {
		t.Errorf("%d objects that the file has lost", n)
	}
	relist(t, s, "200", RelistOptions{}, objs, 50)
	loadedInMemory(t, s)
	serves(t, s, objs)
	sameInMemory(t, s.source)
}

// slowly returns two sources, the first of which is being loaded.
func slowly(t *testing.T, budget int64) (slow *slowCodec, db *DB, first, second *Claimed) {
	path := testPath(t)
	others := Source{Resource: "others", Version: "v1", Form: FormTyped}
	db = openTest(t, path, Options{Durability: DurabilityProcess, ObjectMemory: -1})
	for _, src := range []Source{configMaps, others} {
		s := claimTest(t, db, Claim{Source: src, Indexers: indexers})
		var objs []runtime.Object
		for i := range 20 {
			objs = append(objs, configMap("ns", fmt.Sprintf("cm%03d", i), i+1, map[string]string{"words": "x"}))
		}
		relist(t, s, "90", RelistOptions{}, objs, 50)
	}
	closeTest(t, db)
	slow, db, first = newSlow(t, Options{ObjectMemory: budget}, path)
	<-slow.begun
	second = claimTest(t, db, Claim{Source: others, Indexers: indexers})
	return slow, db, first, second
}

// TestLoadedInTurn: a source that is being loaded has room for all its objects, so that
// two that do not fit together do not drop each other.
func TestLoadedInTurn(t *testing.T) {
	slow, db, first, second := slowly(t, 50_000)
	if second.memory.now != nil {
		t.Error("both are loaded where there is room for one")
	}
	if err := second.Add(configMap("ns", "more", 100, nil)); err != nil {
		t.Fatal(err)
	}
	if second.memory.now != nil {
		t.Error("both are loaded where there is room for one, after a commit")
	}
	close(slow.go_)
	loadedInMemory(t, first)
	first.Release()
	if err := second.Add(configMap("ns", "other", 101, nil)); err != nil {
		t.Fatal(err)
	}
	loadedInMemory(t, second)
	second.Release()
	if db.objects.used != 0 {
		t.Errorf("%d bytes are still counted", db.objects.used)
	}
}

// TestLoadingEnds: a release gives back the reservation for objects that are being
// loaded.
func TestLoadingEnds(t *testing.T) {
	slow, db, first, second := slowly(t, 50_000)
	var released sync.WaitGroup
	released.Go(first.Release)
	<-first.Feed.Ended()
	close(slow.go_)
	released.Wait()
	if err := second.Add(configMap("ns", "other", 101, nil)); err != nil {
		t.Fatal(err)
	}
	loadedInMemory(t, second)
	second.Release()
	if db.objects.used != 0 {
		t.Errorf("%d bytes are still counted", db.objects.used)
	}
}

// TestIndexAddedWhileLoading: an index finds objects that are loaded after it was added.
func TestIndexAddedWhileLoading(t *testing.T) {
	f := newResidentTest(t, Options{ObjectMemory: -1}, 30)
	closeTest(t, f.db)
	slow, db, s := newSlow(t, Options{}, f.db.path)
	f.db, f.s = db, s
	<-slow.begun
	if err := s.AddIndexers(cache.Indexers{"late": lateIndex}); err != nil {
		t.Fatal(err)
	}
	close(slow.go_)
	loadedInMemory(t, s)
	for n := range 2 {
		if keys, err := s.IndexKeys("late", "last03"); err != nil || fmt.Sprint(keys) != "[ns/cm003]" {
			t.Errorf("%d: %v %v", n, keys, err)
		}
		waitBuilt(t, s, "late")
		builtInMemory(s)
	}
	if !s.memory.shown().has("late") {
		t.Error("it is not read from memory")
	}
	f.same()
}

// TestIncompleteInMemory: an index that a commit leaves incomplete in the file is not
// read from memory, until it is complete.
func TestIncompleteInMemory(t *testing.T) {
	f := newResidentTest(t, Options{}, 5)
	loadedInMemory(t, f.s)
	words := cache.Indexers{"words": indexers["words"]}
	f.s.builder.remove(words)
	f.event(7, "late")
	f.s.indices.change(func(fns cache.Indexers) { fns["words"] = words["words"] })
	for _, built := range []bool{false, true} {
		if built {
			f.s.builder.later()
			waitBuilt(t, f.s, "words")
			builtInMemory(f.s)
			if !f.s.memory.shown().has("words") {
				t.Error("it is not read from memory again")
			}
		}
		if keys, err := f.s.IndexKeys("words", "late"); err != nil || fmt.Sprint(keys) != "[ns/cm007]" {
			t.Errorf("built %v: %v %v", built, keys, err)
		}
	}
	f.same()
}

// TestReusedValues: an index function may reuse the slice that it returns.
func TestReusedValues(t *testing.T) {
	f := newResidentTest(t, Options{}, 20)
	loadedInMemory(t, f.s)
	values := make([]string, 1)
	err := f.s.AddIndexers(cache.Indexers{"late": func(o any) ([]string, error) {
		v, err := lateIndex(o)
		copy(values, v)
		return values, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	waitBuilt(t, f.s, "late")
	f.event(3, "y")
	for n := range 20 {
		if keys, err := f.s.IndexKeys("late", fmt.Sprintf("last%02d", n)); err != nil || len(keys) != 1 {
			t.Errorf("%d: %v %v", n, keys, err)
		}
	}
	f.same()
}

// TestFileReadsWhileLoading: while objects are loaded, readers of the file do not wait
// for the disk.
func TestFileReadsWhileLoading(t *testing.T) {
	f := newResidentTest(t, Options{ObjectMemory: -1}, 3)
	closeTest(t, f.db)
	slow, db, s := newSlow(t, Options{}, f.db.path)
	defer close(slow.go_)
	<-slow.begun
	syncing, synced := make(chan struct{}), make(chan struct{})
	wrote := make(chan error, 1)
	go func() {
		wrote <- db.h.update(func(*bolt.Tx) error { return nil }, func() { // readers see it
			close(syncing)
			<-synced
		})
	}()
	<-syncing
	read := make(chan []string)
	go func() { read <- s.ListKeys() }()
	select {
	case keys := <-read:
		if len(keys) != 3 {
			t.Error(keys)
		}
	case <-time.After(time.Minute):
		t.Error("the reader waits")
		defer func() { <-read }()
	}
	close(synced)
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
}

// TestLateIndexFailsOnce: an index function that failed when it was added, and succeeds
// when it is called again, finds the object in memory, too. So it does if the file had the
// values all along.
func TestLateIndexFailsOnce(t *testing.T) {
	for _, had := range []bool{false, true} {
		t.Run(fmt.Sprint("had ", had), func(t *testing.T) {
			f := newResidentTest(t, Options{}, 10)
			if had {
				if err := f.s.AddIndexers(cache.Indexers{"late": lateIndex}); err != nil {
					t.Fatal(err)
				}
				waitBuilt(t, f.s, "late")
				f.s.Release()
				f.s = claimTest(t, f.db, Claim{Indexers: indexers})
				p := &testProducer{}
				f.s.Feed.Attach(p)
				f.p = p
				f.event(30, "y") // the index is incomplete
			}
			loadedInMemory(t, f.s)
			failed := false
			err := f.s.AddIndexers(cache.Indexers{"late": func(o any) ([]string, error) {
				if !failed && o.(*corev1.ConfigMap).Name == "cm003" {
					failed = true
					return nil, errors.New("once")
				}
				return lateIndex(o)
			}})
			if err != nil {
				t.Fatal(err)
			}
			waitBuilt(t, f.s, "late")
			if indexAgain(t, f.s); !failed {
				t.Fatal("the function has not failed")
			}
			for range 2 {
				if keys, err := f.s.IndexKeys("late", "last03"); err != nil || fmt.Sprint(keys) != "[ns/cm003]" {
					t.Errorf("%v %v", keys, err)
				}
				loadedInMemory(t, f.s)
			}
			f.same()
		})
	}
}

// builtInMemory returns once memory has followed the index that waitBuilt has waited for.
func builtInMemory(s *Claimed) {
	s.builder.building.Lock()
	defer s.builder.building.Unlock()
}
