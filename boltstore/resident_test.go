package boltstore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/codec"
	"github.com/kubewake/kubewake/boltstore/internal/format"
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
	f.s.Attach(f.p)
	for range objects {
		f.set(f.rv, "x")
	}
	relist(t, f.s, fmt.Sprint(f.rv), RelistOptions{}, f.srv.list(), 100)
	return f
}

// set makes an object on the server.
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
	sameInMemory(f.t, f.s.Store)
}

// TestPointersAreStable: all reads return the same pointer for an object until it
// changes: after an event, the pointer that handlers are told. A relist keeps it where it
// keeps the record, staged or not.
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
				page, err := f.s.ServerPage(nil, 100)
				if err != nil {
					t.Fatal(err)
				}
				for name, objs := range map[string][]any{"Get": {f.get("ns/cm003")}, "List": f.s.List(), "ByIndex": byIndex, "Index": index, "ServerPage": page.Objects} {
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
			all(second)
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

// TestNeverBack: readers see no step back, and all of a commit or nothing, while a source
// moves between the file and memory.
func TestNeverBack(t *testing.T) {
	f := newResidentTest(t, Options{ObjectMemory: 60_000}, 20)
	var moves atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	fail := func(format string, args ...any) { t.Errorf(format, args...) }
	for w := range 3 {
		wg.Go(func() {
			last, was := "", false
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				if is := f.s.inMemory() != nil; is != was {
					moves.Add(1)
					was = is
				}
				var objs []any
				switch (n + w) % 4 {
				case 0:
					objs = f.s.List()
				case 1:
					objs, _ = f.s.ByIndex(cache.NamespaceIndex, "ns")
				case 2:
					p, err := f.s.ServerPage(nil, 100)
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
	for n := range 400 {
		text := fmt.Sprintf("y%04d", n)
		b := &Batch{}
		for i := range 2 {
			c, err := f.s.Prepare(cache.Updated, f.set(i, text))
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
			c, err := f.s.Prepare(typ, large)
			if err != nil {
				t.Fatal(err)
			}
			b.Changes = append(b.Changes, c)
		}
		f.p.put(b)
		f.s.wake(true)
		f.p.wait(t)
		if n%8 == 5 {
			f.db.objects.wait()
		}
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

// TestObjectBudget: sources share the budget in the order in which they come. One that
// grows beyond it is dropped whole and comes back once it leaves an eighth free.
func TestObjectBudget(t *testing.T) {
	db := openTest(t, testPath(t), Options{Durability: DurabilityProcess, ObjectMemory: 100_000})
	var all []*Claimed
	fill := func(s *Claimed, n int) {
		t.Helper()
		var objs []any
		for i := range n {
			objs = append(objs, configMap("ns", fmt.Sprint("o", i), i+1, map[string]string{"words": "x"}))
		}
		if err := s.Replace(objs, "100"); err != nil {
			t.Fatal(err)
		}
		db.objects.wait()
	}
	expect := func(what string, want ...bool) {
		t.Helper()
		db.objects.wait()
		for i, s := range all {
			sameInMemory(t, s.Store)
			if is := s.inMemory() != nil; is != want[i] {
				t.Errorf("%s: source %d in memory: %v", what, i, is)
			}
			if st := s.State(); st.InMemory != want[i] || (st.ObjectMemory > 0) != want[i] {
				t.Errorf("%s: source %d: %v, %d bytes", what, i, st.InMemory, st.ObjectMemory)
			}
		}
		if db.objects.used > 100_000 || db.objects.used < 0 {
			t.Errorf("%s: %d bytes", what, db.objects.used)
		}
	}
	for i, n := range []int{40, 30, 20} {
		s := claimTest(t, db, Claim{Source: Source{Resource: fmt.Sprint("r", i), Version: "v1", Form: FormTyped}, Indexers: indexers})
		all = append(all, s)
		fill(s, n)
	}
	expect("the last does not fit", true, true, false)
	fill(all[0], 60)
	expect("the first has grown beyond the budget", false, true, true)
	fill(all[0], 30)
	expect("it has shrunk, but leaves too little", false, true, true)
	all[1].Release()
	db.objects.wait()
	all = []*Claimed{all[0], all[2]}
	expect("another has been released", true, true)
	for _, s := range all {
		s.Release()
	}
	if db.objects.used != 0 {
		t.Errorf("%d bytes are still counted", db.objects.used)
	}
}

// TestPackedDoesNotFit: packed objects look small in the file. A source that did not fit
// is not loaded again and again.
func TestPackedDoesNotFit(t *testing.T) {
	f := newResidentTest(t, Options{Compression: CompressionZstd, ObjectMemory: 200_000}, 1)
	for i := range 40 {
		f.srv.set(configMap("ns", fmt.Sprint("large", i), 1000+i, map[string]string{"words": "x", "data": strings.Repeat("z", 10_000)}))
	}
	f.rv = 2000
	relist(t, f.s, "2000", RelistOptions{}, f.srv.list(), 10)
	f.db.objects.wait()
	if m := f.s.metaNow(); f.s.residentSize(int(m.Bytes)) > 100_000 || f.s.memory.now.Load() != nil || f.db.objects.reserve(f.s.estimate(m)) {
		t.Errorf("%d bytes in the file, estimated %d", m.Bytes, f.s.estimate(m))
	}
	f.event(0, "y")
	if f.s.memory.now.Load() != nil {
		t.Error("it is loaded again")
	}
	f.same()
}

// TestNoObjectMemory: with a negative budget nothing is in memory.
func TestNoObjectMemory(t *testing.T) {
	f := newResidentTest(t, Options{ObjectMemory: -1}, 3)
	f.event(1, "y")
	f.db.objects.wait()
	if f.s.memory.now.Load() != nil {
		t.Error("it is in memory")
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
// once a relist has replaced them.
func TestResidentHidden(t *testing.T) {
	f := newResidentTest(t, Options{}, 10)
	loadedInMemory(t, f.s)
	f.s.SetTransformVersion("2")
	f.db.objects.wait()
	if n := len(f.s.List()); n > 0 || f.s.inMemory() != nil {
		t.Errorf("%d objects are served, in memory %v", n, f.s.inMemory() != nil)
	}
	relist(t, f.s, fmt.Sprint(f.rv), RelistOptions{}, f.srv.list(), 3)
	loadedInMemory(t, f.s)
	f.same()
}

// TestResidentSetAside: what is set aside is not read any more.
func TestResidentSetAside(t *testing.T) {
	f := newResidentTest(t, Options{}, 10)
	loadedInMemory(t, f.s)
	if err := f.s.SetAside(); err != nil {
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

// TestResidentHeals: a file that is replaced while it is open is loaded again. Objects
// that were lost are not served.
func TestResidentHeals(t *testing.T) {
	f := newResidentTest(t, Options{}, 10)
	before := loadedInMemory(t, f.s)
	if err := f.db.healing().healNow(errors.New("a test")); err != nil {
		t.Fatal(err)
	}
	if loadedInMemory(t, f.s) == before {
		t.Error("not loaded again")
	}
	f.same()
}

// TestResidentDamage: a source with a damaged record is read from the file, until a
// relist has healed it.
func TestResidentDamage(t *testing.T) {
	f := newResidentTest(t, Options{}, 30)
	closeTest(t, f.db)
	o := Options{Durability: DurabilityProcess, ObjectMemory: 8 << 20}
	f.db = openTest(t, f.db.path, o)
	damageRecord(t, f.db, "ns/cm004")
	f.s = claimTest(t, f.db, Claim{Indexers: indexers})
	f.db.objects.wait()
	if f.s.inMemory() != nil || f.s.Err() == nil {
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
	loadedInMemory(t, f.s)
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

// TestIndexBuiltLater: an index that is added to objects in memory is there at once. A
// read from the file finds the same, before the file has the index and after.
func TestIndexBuiltLater(t *testing.T) {
	f := newResidentTest(t, Options{}, 40)
	loadedInMemory(t, f.s)
	f.s.indexLock.Lock() // the file's index waits
	var calls atomic.Int64
	err := f.s.AddIndexers(cache.Indexers{"late": func(o any) ([]string, error) {
		calls.Add(1)
		return []string{"last" + o.(*corev1.ConfigMap).Name[3:]}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if n := calls.Load(); n != 40 {
		t.Errorf("the function was called %d times", n)
	}
	check := func(what string) {
		t.Helper()
		if keys, err := f.s.IndexKeys("late", "last03"); err != nil || fmt.Sprint(keys) != "[ns/cm003]" {
			t.Errorf("%s: %v %v", what, keys, err)
		}
		if objs, err := f.s.ByIndex("late", "last03"); err != nil || len(objs) != 1 {
			t.Errorf("%s: %v %v", what, objs, err)
		}
		if objs, err := f.s.Index("late", f.get("ns/cm003")); err != nil || len(objs) != 1 {
			t.Errorf("%s: %v %v", what, objs, err)
		}
		if n := len(f.s.ListIndexFuncValues("late")); n != 40 {
			t.Errorf("%s: %d values", what, n)
		}
	}
	check("in memory")
	f.s.memory.wanted.Store(false)
	f.s.forget(f.s.memory.current())
	check("from the file, without the index")
	f.s.indexLock.Unlock()
	waitBuilt(t, f.s, "late")
	check("from the file")
	f.s.memory.wanted.Store(true)
	f.s.settleMemory()
	loadedInMemory(t, f.s)
	check("loaded again")
	f.same()
}

// TestDecodedOnce: goroutines that miss the same object at once share its decoding.
func TestDecodedOnce(t *testing.T) {
	synctest.Test(t, testDecodedOnce)
}

func testDecodedOnce(t *testing.T) {
	slow, _, s := newSlow(t, Options{ObjectMemory: -1, hotBytes: 1}, testPath(t))
	if err := s.Add(at(5, "x")); err != nil {
		t.Fatal(err)
	}
	const readers = 8
	got := make(chan any, readers)
	for range readers {
		go func() {
			obj, _, _ := s.GetByKey("a/o")
			got <- obj
		}()
	}
	<-slow.begun
	synctest.Wait() // one decodes, the others wait for it
	close(slow.go_)
	first := <-got
	for range readers - 1 {
		if obj := <-got; obj == nil || obj != first {
			t.Error("another object")
		}
	}
	if n := len(slow.begun); n > 0 {
		t.Errorf("decoded %d times more", n)
	}
}

// damageRecord changes a stored record.
func damageRecord(t *testing.T, db *DB, key string) {
	t.Helper()
	err := db.h.update(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, configMaps.ID())
		m, err := src.meta()
		if err != nil {
			return err
		}
		k, items := index.AppendKey(nil, key), src.gen(m.Generation).Items
		raw := bytes.Clone(items.Get(k))
		raw[len(raw)-1] ^= 1
		return items.Put(k, raw)
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
}

type slowCodec struct {
	codec.Codec
	begun, go_ chan struct{}
}

func (c *slowCodec) Decode(data []byte) (runtime.Object, error) {
	c.begun <- struct{}{}
	<-c.go_
	return c.Codec.Decode(data)
}

// newSlow has a source whose objects are decoded once the test lets them.
func newSlow(t *testing.T, o Options, path string) (*slowCodec, *DB, *Claimed) {
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	slow := &slowCodec{Codec: c, begun: make(chan struct{}, 100), go_: make(chan struct{})}
	o.Durability, o.ObjectMemory = DurabilityProcess, cmp.Or(o.ObjectMemory, 8<<20)
	db := openTest(t, path, o)
	return slow, db, claimTest(t, db, Claim{Codec: slow, Indexers: indexers})
}

// TestChangedWhileLoading: what commits change while the objects are loaded is in memory
// as they left it.
func TestChangedWhileLoading(t *testing.T) {
	f := newResidentTest(t, Options{ObjectMemory: -1}, 3)
	closeTest(t, f.db)
	slow, db, s := newSlow(t, Options{}, f.db.path)
	<-slow.begun // the loader has read the records
	if err := s.Delete(f.srv["ns/cm001"]); err != nil {
		t.Fatal(err)
	}
	delete(f.srv, "ns/cm001")
	for _, o := range []*corev1.ConfigMap{f.set(2, "y"), f.set(7, "y")} {
		if err := s.Update(o); err != nil {
			t.Fatal(err)
		}
	}
	close(slow.go_)
	f.db, f.s = db, s
	loadedInMemory(t, s)
	f.same()
}

// TestReadersWaitForMemory: who reads a commit from the file finds it in memory next.
func TestReadersWaitForMemory(t *testing.T) {
	slow, db, s := newSlow(t, Options{}, testPath(t))
	loadedInMemory(t, s) // nothing to decode
	o := at(5, "x")
	if err := s.Add(o); err != nil {
		t.Fatal(err)
	}
	close(slow.go_)
	loadedInMemory(t, s)
	o.ResourceVersion, o.Data = "6", map[string]string{"words": "w"}
	if err := s.Update(o); err != nil {
		t.Fatal(err)
	}
	slow.begun, slow.go_ = make(chan struct{}, 100), make(chan struct{})
	o.ResourceVersion, o.Data = "7", map[string]string{"words": "y"} // in place, so memory decodes it
	wrote := make(chan error, 1)
	go func() { wrote <- s.Update(o) }()
	<-slow.begun // the file has it, memory not yet
	var follows atomic.Bool
	read := make(chan bool, 1)
	go func() {
		rv := ""
		err := s.view(func(m *sourceMeta, src sourceTx) error {
			_, r, err := format.ParseRecord(index.AppendKey(nil, "a/o"), src.gen(m.Generation).Items.Get(index.AppendKey(nil, "a/o")))
			rv = r.ResourceVersion
			return err
		})
		if err != nil || rv != "7" {
			t.Errorf("version %s, %v", rv, err)
		}
		read <- follows.Load()
	}()
	select {
	case <-read:
		t.Error("memory is behind what was read")
		read <- true
	case <-time.After(100 * time.Millisecond): // it waits
	}
	follows.Store(true)
	close(slow.go_)
	if !<-read {
		t.Error("memory was behind what was read")
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	sameInMemory(t, s.Store)
	_ = db
}

// TestMemoryLimit: the limits of the control group and of those above it hold, and that
// of Go's runtime.
func TestMemoryLimit(t *testing.T) {
	for name, c := range map[string]struct {
		files   map[string]string
		runtime int64
		want    int64
	}{
		"none":            {nil, 1<<63 - 1, 0},
		"runtime":         {nil, 1000, 1000},
		"container":       {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2000\n"}, 1<<63 - 1, 2000},
		"no limit":        {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"}, 1<<63 - 1, 0},
		"the smaller":     {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "2000\n"}, 1500, 1500},
		"a group above":   {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/memory.max": "3000", "sys/fs/cgroup/a/b/memory.max": "max"}, 1<<63 - 1, 3000},
		"version 1":       {map[string]string{"proc/self/cgroup": "4:cpu:/\n3:memory:/x\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "4000"}, 1<<63 - 1, 4000},
		"version 1, none": {map[string]string{"proc/self/cgroup": "3:memory:/\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712"}, 1<<63 - 1, 0},
		"the host's path": {map[string]string{"proc/self/cgroup": "3:memory:/docker/0a\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "5000"}, 1<<63 - 1, 5000},
		"malformed":       {map[string]string{"proc/self/cgroup": "what\n0::\n", "sys/fs/cgroup/memory.max": "much"}, 1<<63 - 1, 0},
	} {
		root := t.TempDir()
		for file, text := range c.files {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, file)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := memoryLimit(root, c.runtime); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if a, b := objectMemoryOf(0), objectMemoryOf(1<<30); a != 8<<20 || b != 256<<20 {
		t.Error(a, b)
	}
}
