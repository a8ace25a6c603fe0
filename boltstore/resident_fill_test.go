package boltstore

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/codec"
	"github.com/kubewake/kubewake/index"
)

// TestIndexAddedInMemory: an index that is added to objects in memory finds the same
// objects as one in the file.
func TestIndexAddedInMemory(t *testing.T) {
	f := newResidentTest(t, Options{}, 40)
	loadedInMemory(t, f.s)
	object := f.get("ns/cm003")
	var calls atomic.Int64
	err := f.s.AddIndexers(cache.Indexers{"late": func(o any) ([]string, error) {
		calls.Add(1)
		return []string{"last" + o.(*corev1.ConfigMap).Name[3:]}, nil
	}})
	if err != nil {
		t.Fatal(err)
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
	check("while it is built, or after")
	waitBuilt(t, f.s, "late")
	builtInMemory(f.s)
	if n := calls.Load(); n != 41 { // and that of Index
		t.Errorf("the function was called %d times", n)
	}
	if !f.s.memory.shown().has("late") || f.get("ns/cm003") != object {
		t.Error("it is not in memory, or the objects are others")
	}
	check("in memory")
	wantMemory(f.s, false)
	check("from the file")
	wantMemory(f.s, true)
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

// TestLoadedAndReplayedOnce: objects that are loaded and replayed at the same time are
// decoded once.
func TestLoadedAndReplayedOnce(t *testing.T) {
	const objects = 600
	f := newResidentTest(t, Options{ObjectMemory: -1}, objects)
	closeTest(t, f.db)
	c, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	counted := &countedCodec{Codec: c}
	f.db = openTest(t, f.db.path, Options{Durability: DurabilityProcess, ObjectMemory: 8 << 20, hotBytes: 1})
	f.s = claimTest(t, f.db, Claim{Codec: counted, Indexers: indexers})
	told := map[string]any{}
	for from := []byte(nil); len(told) == 0 || from != nil; {
		p, err := f.s.Delivery.ServerPage(from, 50)
		if err != nil {
			t.Fatal(err)
		}
		for i, key := range p.Keys {
			told[key] = p.Objects[i]
		}
		from = p.Next
	}
	r := loadedInMemory(t, f.s)
	if n := counted.n.Load(); n != objects || len(told) != objects {
		t.Errorf("%d objects of %d were decoded %d times", len(told), objects, n)
	}
	for key, obj := range told {
		if is, _ := r.store.Get(key); is != obj {
			t.Fatalf("%s: readers see another object than the handler was told", key)
		}
	}
	f.same()
}

type countedCodec struct {
	codec.Codec
	n atomic.Int64
}

func (c *countedCodec) Decode(data []byte) (runtime.Object, error) {
	c.n.Add(1)
	return c.Codec.Decode(data)
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

// newSlow returns a source whose objects are decoded when the test allows it.
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

// TestChangedWhileLoading: objects that commits change during loading are in memory as
// the commits left them.
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

// TestReadersWaitForMemory: a reader that has read a commit from the file also finds it
// in memory next.
func TestReadersWaitForMemory(t *testing.T) {
	slow, _, s := newSlow(t, Options{}, testPath(t))
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
			_, r, err := s.coder.owner.ParseRecord(index.AppendKey(nil, "a/o"),
				src.contents().Items.Get(index.AppendKey(nil, "a/o")))
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
	sameInMemory(t, s.source)
}

// TestOnePointerAtTwoKeys: a program may store one object at several keys, as in a
// ThreadSafeStore. Memory that is loaded afterwards stays the same as the file.
func TestOnePointerAtTwoKeys(t *testing.T) {
	f := newResidentTest(t, Options{}, 3)
	f.unfed()
	wantMemory(f.s, false)
	o := configMap("ns", "both", 100, map[string]string{"words": "a"})
	both := []string{"ns/one", "ns/two"}
	for _, key := range both {
		if err := f.s.Filled.TransactionByKey(cache.ThreadSafeStoreTransaction{
			Transaction: cache.Transaction{Type: cache.TransactionTypeAdd, Object: o}, Key: key}); err != nil {
			t.Fatal(err)
		}
	}
	wantMemory(f.s, true)
	loadedInMemory(t, f.s)
	for n := range both {
		if keys, err := f.s.IndexKeys("words", "a"); err != nil || !slices.Equal(keys, both[n:]) {
			t.Errorf("%v %v", keys, err)
		}
		if err := f.s.Filled.TransactionByKey(cache.ThreadSafeStoreTransaction{
			Transaction: cache.Transaction{Type: cache.TransactionTypeDelete}, Key: both[n]}); err != nil {
			t.Fatal(err)
		}
		loadedInMemory(t, f.s)
		sameInMemory(t, f.s.source)
	}
}

// TestMemoryBesideClose: Close may release a source whose claim is about to return. Then
// nothing may begin that Close would wait for.
func TestMemoryBesideClose(t *testing.T) {
	db := openTest(t, testPath(t), Options{ObjectMemory: 1 << 20})
	s := claimTest(t, db, Claim{})
	s.Release()
	s.memory.begin()
	if s.memory.now != nil {
		t.Error("objects are loaded after the end")
	}
}
