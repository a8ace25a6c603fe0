package boltstore

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

type fedTest struct {
	t    *testing.T
	o    Options
	path string
	db   *DB
	s    *Claimed
	p    *testProducer
	from uint64 // seq of the first entry that counts
}

func newFedTest(t *testing.T, o Options) *fedTest {
	f := &fedTest{t: t, o: o, path: testPath(t)}
	f.open()
	return f
}

func (f *fedTest) open() {
	f.db = openTest(f.t, f.path, f.o)
	f.s, f.p = claimTest(f.t, f.db, Claim{Indexers: indexers}), &testProducer{}
	f.s.Feed.Attach(f.p)
}

func (f *fedTest) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *fedTest) event(typ cache.DeltaType, obj *corev1.ConfigMap) {
	f.t.Helper()
	c, err := f.s.Feed.Prepare(typ, obj)
	f.must(err)
	f.p.put(&Batch{Changes: []*Change{c}, ResourceVersion: obj.ResourceVersion})
	f.s.wake(true)
	f.p.wait(f.t)
}

func (f *fedTest) list(rv int, objs ...*corev1.ConfigMap) {
	f.t.Helper()
	var all []runtime.Object
	for _, o := range objs {
		all = append(all, o)
	}
	// A list has more objects than the tested one.
	all = append(all, configMap("z", "other", 1, nil))
	relist(f.t, f.s, fmt.Sprint(rv), RelistOptions{}, all, 10)
}

// told returns the changes that handlers were told since the test began.
func (f *fedTest) told() string {
	f.t.Helper()
	var all []string
	for e, err := range f.s.History("a/o") {
		f.must(err)
		if e.Seq < f.from {
			continue
		}
		obj, err := e.Object()
		f.must(err)
		s := string(e.Type) + " "
		if prev, err := e.Previous(); err != nil {
			f.t.Fatal(err)
		} else if prev != nil && e.Type == cache.Updated {
			s += shortly(prev) + ">"
		}
		all = append(all, s+shortly(obj))
	}
	return strings.Join(all, ", ")
}

func shortly(obj any) string {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return "?" + shortly(d.Obj)
	}
	o, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return "nothing"
	}
	return o.ResourceVersion + o.Data["words"]
}

// read returns the objects that readers see, by key and by index.
func (f *fedTest) read() string {
	f.t.Helper()
	obj, ok, err := f.s.GetByKey("a/o")
	f.must(err)
	if !ok {
		if keys, err := f.s.IndexKeys(cache.NamespaceIndex, "a"); err != nil || len(keys) > 0 {
			f.t.Fatal("the index lists what is not there: ", keys, err)
		}
		return "nothing"
	}
	found, err := f.s.ByIndex("words", obj.(*corev1.ConfigMap).Data["words"])
	if err != nil || len(found) != 1 || shortly(found[0]) != shortly(obj) {
		f.t.Fatal("the index finds ", found, err)
	}
	return shortly(obj)
}
