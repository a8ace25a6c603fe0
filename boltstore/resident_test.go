package boltstore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/index"
)

// residentTest is a source with config maps "ns/cm000" and so on.
type residentTest struct {
	t   *testing.T
	db  *DB
	s   *Claimed
	p   *testProducer
	srv server
	rv  int
}

func newResidentTest(t *testing.T, o Options, objects int) *residentTest {
	o.Durability, o.Window, o.ObjectMemory = DurabilityProcess, time.Nanosecond, cmp.Or(o.ObjectMemory, 8<<20)
	f := &residentTest{t: t, srv: server{}, p: &testProducer{}}
	f.db = openTest(t, testPath(t), o)
	f.s = claimTest(t, f.db, Claim{Indexers: indexers})
	f.s.Feed.Attach(f.p)
	for range objects {
		f.set(f.rv, "x")
	}
	relist(t, f.s, fmt.Sprint(f.rv), RelistOptions{}, f.srv.list(), 100)
	return f
}

// unfed has a program take over from the informer.
func (f *residentTest) unfed() {
	f.t.Helper()
	f.s.Release()
	f.s = claimTest(f.t, f.db, Claim{Indexers: indexers})
	loadedInMemory(f.t, f.s)
}

// set creates an object on the server.
func (f *residentTest) set(n int, words string) *corev1.ConfigMap {
	f.rv++
	o := configMap("ns", fmt.Sprintf("cm%03d", n), f.rv, map[string]string{"words": words})
	f.srv.set(o)
	return o
}

// event commits a change.
func (f *residentTest) event(n int, words string) *corev1.ConfigMap {
	f.t.Helper()
	o := f.set(n, words)
	f.p.add(f.t, f.s, o)
	f.p.wait(f.t)
	return o
}

func (f *residentTest) get(key string) any {
	f.t.Helper()
	obj, _, err := f.s.GetByKey(key)
	if err != nil {
		f.t.Fatal(err)
	}
	return obj
}

func (f *residentTest) same() {
	f.t.Helper()
	sameObjects(f.t, "read", f.srv.anys(), f.s.List())
	sameInMemory(f.t, f.s.source)
}

// TestPointersAreStable: all reads return the same pointer for an object until it
// changes: after an event, the pointer that handlers are told. A relist that is not staged
// keeps the pointer if it keeps the record. After one that is, all reads return another.
func TestPointersAreStable(t *testing.T) {
	for _, commitBytes := range []int{1, 4 << 20} {
		t.Run(fmt.Sprint("staged above ", commitBytes), func(t *testing.T) {
			f := newResidentTest(t, Options{maxCommitBytes: commitBytes}, 20)
			loadedInMemory(t, f.s)
			first := f.get("ns/cm003")
			all := func(want any) {
				t.Helper()
				byIndex, err := f.s.ByIndex("words", "x")
				if err != nil {
					t.Fatal(err)
				}
				index, err := f.s.Index("words", want)
				if err != nil {
					t.Fatal(err)
				}
				page, err := f.s.Delivery.ServerPage(nil, 100)
				if err != nil {
					t.Fatal(err)
				}
				for name, objs := range map[string][]any{"Get": {f.get("ns/cm003")}, "List": f.s.List(),
					"ByIndex": byIndex, "Index": index, "ServerPage": page.Objects} {
					if !slices.Contains(objs, want) {
						t.Errorf("%s has another pointer", name)
					}
				}
			}
			all(first)
			second := f.event(3, "x")
			all(second)
			told := journalFrom(t, f.s, f.s.State().Seq)[0]
			if prev, err := told.Previous(); err != nil || prev == nil {
				t.Error(prev, err)
			}
			f.set(5, "x")
			relist(t, f.s, fmt.Sprint(f.rv), RelistOptions{}, f.srv.list(), 5)
			loadedInMemory(t, f.s)
			if third := f.get("ns/cm003"); commitBytes == 1 {
				all(third)
			} else {
				all(second)
			}
			f.same()
		})
	}
}

// TestPreviousFromMemory: an update is told with the pointer that readers had before.
func TestPreviousFromMemory(t *testing.T) {
	f := newResidentTest(t, Options{hotBytes: 1}, 5)
	loadedInMemory(t, f.s)
	before := f.get("ns/cm002")
	after := f.event(2, "y")
	e := f.p.entries[len(f.p.entries)-1]
	prev, err := e.Previous()
	if err != nil || prev != before {
		t.Errorf("the object before is not memory's, %v", err)
	}
	if obj, err := e.Object(); err != nil || obj != any(after) || f.get("ns/cm002") != any(after) {
		t.Errorf("the object after is not the one that came, %v", err)
	}
}

// TestNeverBack: while a source moves between the file and memory, readers see no step
// back, and either a whole commit or none of it.
func TestNeverBack(t *testing.T) {
	f := newResidentTest(t, Options{ObjectMemory: 60_000}, 20)
	var moves atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	fail := func(format string, args ...any) { t.Errorf(format, args...) }
	look := func(was *bool) {
		if is := f.s.memory.shown() != nil; is != *was {
			moves.Add(1)
			*was = is
		}
	}
	for w := range 3 {
		wg.Go(func() {
			last, was := "", false
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				look(&was)
				var objs []any
				switch (n + w) % 4 {
				case 0:
					objs = f.s.List()
				case 1:
					var err error
					if objs, err = f.s.ByIndex(cache.NamespaceIndex, "ns"); err != nil {
						fail("%v", err)
					}
				case 2:
					p, err := f.s.Delivery.ServerPage(nil, 100)
					if err != nil {
						fail("%v", err)
					}
					objs = p.Objects
				default:
					if obj, _, err := f.s.GetByKey("ns/cm000"); err == nil && obj != nil {
						objs = []any{obj}
					}
				}
				// Each commit gives cm000 and cm001 the same words, which grow.
				words := map[string]string{}
				for _, o := range objs {
					words[o.(*corev1.ConfigMap).Name] = o.(*corev1.ConfigMap).Data["words"]
				}
				if len(objs) > 1 && words["cm000"] != words["cm001"] {
					fail("a part of a commit: %s and %s", words["cm000"], words["cm001"])
				}
				if words["cm000"] < last {
					fail("%s after %s", words["cm000"], last)
				}
				last = words["cm000"]
			}
		})
	}
	was := false
	for n := range 400 {
		text := fmt.Sprintf("y%04d", n)
		b := &Batch{}
		for i := range 2 {
			c, err := f.s.Feed.Prepare(cache.Updated, f.set(i, text))
			if err != nil {
				t.Fatal(err)
			}
			b.Changes = append(b.Changes, c)
		}
		// A large object takes the source beyond the budget, and its delete brings it back.
		large := configMap("ns", "large", f.rv+1, map[string]string{"words": "x", "data": string(make([]byte, 20_000))})
		f.rv++
		typ := cache.Added
		if n%2 == 1 {
			typ = cache.Deleted
		}
		if n%8 < 2 {
			c, err := f.s.Feed.Prepare(typ, large)
			if err != nil {
				t.Fatal(err)
			}
			b.Changes = append(b.Changes, c)
		}
		f.p.put(b)
		f.s.wake(true)
		f.p.wait(t)
		if n%8 == 5 {
			waitMemory(f.s)
		}
		look(&was) // one processor may not let the readers see it
		if n%100 == 50 {
			relist(t, f.s, fmt.Sprint(f.rv), RelistOptions{Content: true}, f.srv.list(), 7)
		}
	}
	close(stop)
	wg.Wait()
	if moves.Load() < 20 {
		t.Errorf("the source moved only %d times", moves.Load())
	}
	f.same()
}

// TestResidentRestart: after a restart the objects are loaded from the file.
func TestResidentRestart(t *testing.T) {
	f := newResidentTest(t, Options{}, 50)
	closeTest(t, f.db)
	f.db = openTest(t, f.db.path, Options{Durability: DurabilityProcess, ObjectMemory: 8 << 20})
	f.s = claimTest(t, f.db, Claim{Indexers: indexers})
	loadedInMemory(t, f.s)
	f.same()
}

// TestResidentHidden: objects of another transform or Go type are not in memory, and come
// when a relist has replaced them.
func TestResidentHidden(t *testing.T) {
	f := newResidentTest(t, Options{}, 10)
	loadedInMemory(t, f.s)
	f.s.SetTransformVersion("2")
	waitMemory(f.s)
	if n := len(f.s.List()); n > 0 || f.s.memory.shown() != nil {
		t.Errorf("%d objects are served, in memory %v", n, f.s.memory.shown() != nil)
	}
	relist(t, f.s, fmt.Sprint(f.rv), RelistOptions{}, f.srv.list(), 3)
	loadedInMemory(t, f.s)
	f.same()
}

// TestResidentEmptied: contents that are set aside are no longer read.
func TestResidentEmptied(t *testing.T) {
	f := newResidentTest(t, Options{}, 10)
	loadedInMemory(t, f.s)
	if err := f.s.Upstream.Empty(); err != nil {
		t.Fatal(err)
	}
	f.srv = server{}
	f.same()
	loadedInMemory(t, f.s)
	f.same()
	f.set(7, "x")
	relist(t, f.s, fmt.Sprint(f.rv), RelistOptions{}, f.srv.list(), 3)
	f.same()
	loadedInMemory(t, f.s)
	f.same()
}

// TestResidentDamage: a source with a damaged record is read from the file, until a
// relist has healed it.
func TestResidentDamage(t *testing.T) {
	f := newResidentTest(t, Options{}, 30)
	closeTest(t, f.db)
	o := Options{Durability: DurabilityProcess, ObjectMemory: 8 << 20}
	f.db = openTest(t, f.db.path, o)
	damageRecord(t, f.db, configMaps, "ns/cm004")
	f.s = claimTest(t, f.db, Claim{Indexers: indexers})
	waitMemory(f.s)
	if f.s.memory.shown() != nil || f.s.Err() == nil {
		t.Error("the damage was not noticed", f.s.Err())
	}
	if _, _, err := f.s.GetByKey("ns/cm004"); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	relist(t, f.s, fmt.Sprint(f.rv), RelistOptions{}, f.srv.list(), 10)
	loadedInMemory(t, f.s)
	f.same()
}

// TestResidentClosed: reads of a closed file fail, though the objects were in memory.
func TestResidentClosed(t *testing.T) {
	f := newResidentTest(t, Options{}, 5)
	loadedInMemory(t, f.s)
	_ = f.db.Close() // it names the source, which still runs
	if _, _, err := f.s.GetByKey("ns/cm001"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if _, err := f.s.ByIndex("words", "x"); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if n := len(f.s.List()); n > 0 {
		t.Errorf("%d objects", n)
	}
}

// TestReleasedIsNotInMemory: a released store reads the file, which another claim changes.
func TestReleasedIsNotInMemory(t *testing.T) {
	f := newResidentTest(t, Options{}, 5)
	loadedInMemory(t, f.s)
	old := f.s
	old.Release()
	f.s = claimTest(t, f.db, Claim{Indexers: indexers})
	loadedInMemory(t, f.s)
	if err := f.s.Update(f.set(2, "y")); err != nil {
		t.Fatal(err)
	}
	sameObjects(t, "the old claim", f.srv.anys(), old.List())
	f.same()
}

// TestSamePointerAgain: a program that changes an object in place and writes it again
// gets the right index entries. client-go's store would not find the old ones.
func TestSamePointerAgain(t *testing.T) {
	f := newResidentTest(t, Options{}, 3)
	f.unfed()
	o := f.set(1, "a")
	if err := f.s.Update(o); err != nil {
		t.Fatal(err)
	}
	o.ResourceVersion, o.Data = fmt.Sprint(f.rv+1), map[string]string{"words": "b"}
	if err := f.s.Update(o); err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]int{"a": 0, "b": 1} {
		if keys, err := f.s.IndexKeys("words", word); err != nil || len(keys) != want {
			t.Errorf("%s: %v %v", word, keys, err)
		}
	}
	f.same()
}

// damageRecord changes a stored record.
func damageRecord(t *testing.T, db *DB, of Source, key string) {
	t.Helper()
	err := db.h.update(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, of.ID())
		k, items := index.AppendKey(nil, key), src.contents().Items
		raw := bytes.Clone(items.Get(k))
		raw[len(raw)-1] ^= 1
		return items.Put(k, raw)
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
}
