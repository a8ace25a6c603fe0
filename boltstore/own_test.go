package boltstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// ownTest is a source with own writes.
type ownTest struct {
	t    *testing.T
	o    Options
	path string
	db   *DB
	s    *Claimed
	p    *testProducer
	from uint64 // seq of the first entry that counts
	raw  bool   // a list leaves out what the file has
}

func (f *ownTest) open() {
	f.db = openTest(f.t, f.path, f.o)
	f.s, f.p = claimTest(f.t, f.db, Claim{Indexers: indexers}), &testProducer{}
	f.s.Attach(f.p)
}

func (f *ownTest) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func twin(rv int, content string) *corev1.ConfigMap {
	o := at(rv, content)
	o.UID = "another"
	return o
}

func (f *ownTest) event(typ cache.DeltaType, obj *corev1.ConfigMap) {
	f.t.Helper()
	c, err := f.s.Prepare(typ, obj)
	f.must(err)
	f.p.put(&Batch{Changes: []*Change{c}, ResourceVersion: obj.ResourceVersion})
	f.s.wake(true)
	f.p.wait(f.t)
}

func (f *ownTest) list(rv int, objs ...*corev1.ConfigMap) {
	f.t.Helper()
	var all []runtime.Object
	for _, o := range objs {
		all = append(all, o)
	}
	// A list has more objects than the tested one.
	all = append(all, configMap("z", "other", 1, nil))
	if !f.raw {
		relist(f.t, f.s, fmt.Sprint(rv), RelistOptions{}, all, 10)
		return
	}
	r, err := f.s.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { f.t.Error(err) }})
	f.must(err)
	defer r.Abort()
	for _, obj := range all {
		o := obj.(*corev1.ConfigMap)
		l := []listing.Object{{Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), ResourceVersion: o.ResourceVersion}}
		found, err := r.Compare(l)
		f.must(err)
		if found[0] == listing.MatchSame {
			f.must(r.Keep(l))
		} else {
			f.must(r.Page([]runtime.Object{obj}))
		}
	}
	_, err = r.Commit(fmt.Sprint(rv), time.Now())
	f.must(err)
}

// told returns the changes that handlers were told since the test began.
func (f *ownTest) told() string {
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
func (f *ownTest) read() string {
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

// replay returns the objects that a new handler is shown.
func (f *ownTest) replay() string {
	f.t.Helper()
	p, err := f.s.ServerPage(nil, 100)
	f.must(err)
	if n, err := f.s.ServerObjects(); err != nil || n != uint64(len(p.Keys)) {
		f.t.Fatalf("the server has shown %d objects, counted %d: %v", len(p.Keys), n, err)
	}
	found := "nothing"
	for i, key := range p.Keys {
		if key == "a/o" {
			found = shortly(p.Objects[i])
		}
	}
	h, _ := claimHandler(f.t, f.s, "new")
	tookReset(f.t, h)
	durable := "nothing"
	if is, ok, err := h.Read("a/o"); err != nil || ok != (found != "nothing") {
		f.t.Fatal("a durable handler: ", ok, err)
	} else if ok {
		durable = shortly(is.Object)
	}
	f.must(f.s.RemoveHandler("new"))
	if durable != found {
		f.t.Fatalf("a plain handler is shown %s, a durable one %s", found, durable)
	}
	return found
}

func (f *ownTest) bases() uint64 { return f.s.metaNow().Own.Count }

// ownCases have own writes, the server's answer, and the changes that are then told, read
// and kept. The name is followed by the objects read after the own write.
var ownCases = []struct {
	name   string
	before []*corev1.ConfigMap // on the server
	own    func(s *Claimed) error
	read   string // after the program's write
	replay string
	// event and list are the ways in which the server's state comes.
	event func(f *ownTest)
	list  func(f *ownTest)
	told  string
	left  string // what is read then
	keeps uint64
}{
	{name: "update with the answer",
		before: []*corev1.ConfigMap{at(5, "x")}, own: func(s *Claimed) error { return s.Update(at(7, "y")) }, read: "7y", replay: "5x",
		event: func(f *ownTest) { f.event(cache.Updated, at(7, "y")) }, list: func(f *ownTest) { f.list(7, at(7, "y")) },
		told: "Updated 5x>7y", left: "7y"},
	{name: "update twice, and the server's older version first",
		before: []*corev1.ConfigMap{at(5, "x")}, own: func(s *Claimed) error { return errors.Join(s.Update(at(6, "w")), s.Update(at(8, "y"))) }, read: "8y", replay: "5x",
		event: func(f *ownTest) { f.event(cache.Updated, at(6, "w")) }, list: func(f *ownTest) { f.list(6, at(6, "w")) },
		told: "Updated 5x>6w", left: "8y", keeps: 1},
	{name: "an older write",
		before: []*corev1.ConfigMap{at(5, "x")}, own: func(s *Claimed) error { return s.Update(at(4, "w")) }, read: "5x", replay: "5x",
		event: func(f *ownTest) { f.event(cache.Updated, at(6, "y")) }, list: func(f *ownTest) { f.list(6, at(6, "y")) },
		told: "Updated 5x>6y", left: "6y"},
	{name: "a change that the server never hears of",
		before: []*corev1.ConfigMap{at(5, "x")}, own: func(s *Claimed) error { return s.Update(at(5, "mine")) }, read: "5mine", replay: "5x",
		event: func(f *ownTest) { f.event(cache.Updated, at(9, "y")) }, list: func(f *ownTest) { f.list(9, at(9, "y")) },
		told: "Updated 5x>9y", left: "9y"},
	{name: "a change of which a list shows nothing",
		before: []*corev1.ConfigMap{at(5, "x")}, own: func(s *Claimed) error { return s.Update(at(5, "mine")) }, read: "5mine", replay: "5x",
		list: func(f *ownTest) { f.list(9, at(5, "x")) }, told: "", left: "5x"},
	{name: "a change that is taken back",
		before: []*corev1.ConfigMap{at(5, "x")}, own: func(s *Claimed) error { return errors.Join(s.Update(at(5, "mine")), s.Update(at(5, "x"))) }, read: "5x", replay: "5x",
		list: func(f *ownTest) { f.list(9, at(5, "x")) }, told: "", left: "5x"},
	{name: "create",
		own: func(s *Claimed) error { return s.Add(at(7, "y")) }, read: "7y", replay: "nothing",
		event: func(f *ownTest) { f.event(cache.Added, at(7, "y")) }, list: func(f *ownTest) { f.list(7, at(7, "y")) },
		told: "Added 7y", left: "7y"},
	{name: "create that the server never hears of",
		own: func(s *Claimed) error { return s.Add(at(0, "y")) }, read: "0y", replay: "nothing",
		list: func(f *ownTest) { f.list(9) }, told: "", left: "nothing"},
	{name: "create, and a list of before",
		own: func(s *Claimed) error { return s.Add(at(7, "y")) }, read: "7y", replay: "nothing",
		list: func(f *ownTest) { f.list(6) }, told: "", left: "7y", keeps: 1},
	{name: "create and delete",
		own: func(s *Claimed) error { return errors.Join(s.Add(at(7, "y")), s.Delete(at(7, "y"))) }, read: "nothing", replay: "nothing",
		event: func(f *ownTest) { f.event(cache.Added, at(7, "y")); f.event(cache.Deleted, at(8, "y")) }, list: func(f *ownTest) { f.list(7, at(7, "y")); f.list(8) },
		told: "Added 7y, Deleted 8y", left: "nothing"},
	{name: "delete",
		before: []*corev1.ConfigMap{at(5, "x")}, own: func(s *Claimed) error { return s.Delete(at(5, "x")) }, read: "nothing", replay: "5x",
		event: func(f *ownTest) { f.event(cache.Deleted, at(7, "x")) }, list: func(f *ownTest) { f.list(7) },
		told: "Deleted 7x", left: "nothing"},
	{name: "delete that the server never hears of",
		before: []*corev1.ConfigMap{at(5, "x")}, own: func(s *Claimed) error { return s.Delete(at(5, "x")) }, read: "nothing", replay: "5x",
		list: func(f *ownTest) { f.list(9, at(5, "x")) }, told: "", left: "5x"},
	{name: "delete, and the server's older change first",
		before: []*corev1.ConfigMap{at(5, "x")}, own: func(s *Claimed) error { return s.Delete(at(5, "x")) }, read: "nothing", replay: "5x",
		event: func(f *ownTest) { f.event(cache.Updated, at(6, "w")); f.event(cache.Deleted, at(7, "w")) },
		list:  func(f *ownTest) { f.list(6, at(6, "w")); f.list(7) },
		told:  "Updated 5x>6w, Deleted 7w", left: "nothing"},
	{name: "delete of an older object that another one has replaced",
		before: []*corev1.ConfigMap{twin(5, "x")}, own: func(s *Claimed) error { return s.Delete(at(4, "w")) }, read: "5x", replay: "5x",
		event: func(f *ownTest) { f.event(cache.Updated, twin(6, "y")) }, list: func(f *ownTest) { f.list(6, twin(6, "y")) },
		told: "Updated 5x>6y", left: "6y"},
	{name: "delete of an own write by an older version of its object",
		before: []*corev1.ConfigMap{twin(5, "x")}, own: func(s *Claimed) error { return errors.Join(s.Update(at(7, "y")), s.Delete(at(6, "y"))) }, read: "nothing", replay: "5x",
		event: func(f *ownTest) { f.event(cache.Deleted, twin(7, "x")) }, list: func(f *ownTest) { f.list(7) },
		told: "Deleted 7x", left: "nothing"},
	{name: "replaced by another object",
		before: []*corev1.ConfigMap{at(5, "x")}, own: func(s *Claimed) error { return s.Update(twin(9, "y")) }, read: "9y", replay: "5x",
		event: func(f *ownTest) { f.event(cache.Deleted, at(8, "x")); f.event(cache.Added, twin(9, "y")) },
		list:  func(f *ownTest) { f.list(9, twin(9, "y")) },
		told:  "Deleted 8x, Added 9y", left: "9y"},
	{name: "replaced by another object, which has not come",
		before: []*corev1.ConfigMap{at(5, "x")}, own: func(s *Claimed) error { return s.Update(twin(9, "y")) }, read: "9y", replay: "5x",
		event: func(f *ownTest) { f.event(cache.Deleted, at(8, "x")) }, list: func(f *ownTest) { f.list(8) },
		told: "Deleted 8x", left: "9y", keeps: 1},
	{name: "transaction",
		before: []*corev1.ConfigMap{at(5, "x")}, own: func(s *Claimed) error {
			if err := s.Transaction(cache.Transaction{Type: cache.TransactionTypeUpdate, Object: at(7, "y")}); err != nil {
				return err
			}
			return nil
		}, read: "7y", replay: "5x",
		event: func(f *ownTest) { f.event(cache.Updated, at(7, "y")) }, list: func(f *ownTest) { f.list(7, at(7, "y")) },
		told: "Updated 5x>7y", left: "7y"},
	{name: "replace",
		before: []*corev1.ConfigMap{at(5, "x")}, own: func(s *Claimed) error { return s.Replace([]any{configMap("z", "other", 1, nil)}, "30") }, read: "nothing", replay: "5x",
		event: func(f *ownTest) { f.event(cache.Updated, at(7, "y")) }, list: func(f *ownTest) { f.list(7, at(7, "y")) },
		told: "Updated 5x>7y", left: "7y"},
}

// between has the operations on the file between the own write and the server's answer.
var between = map[string]func(f *ownTest){
	"nothing": func(*ownTest) {},
	"restart": func(f *ownTest) { closeTest(f.t, f.db); f.open() },
	"compact": func(f *ownTest) {
		if _, err := f.db.Compact(context.Background(), nil); err != nil {
			f.t.Fatal(err)
		}
	},
	"encrypt, rotate, decrypt": func(f *ownTest) {
		for _, o := range []Options{{Keyset: sealtest.Keyset()}, {Keyset: sealtest.Keyset(), decrypt: true}, {Keyset: sealtest.Keyset()}} {
			closeTest(f.t, f.db)
			o.maxCommitBytes, o.Durability = f.o.maxCommitBytes, DurabilityProcess
			f.o = o
			changeHeader(f.t, f.db.path, keysDue)
			f.open()
		}
	},
	"salvage": func(f *ownTest) {
		f.must(f.db.healing().healNow(errors.New("a test")))
		if f.s.Err() != nil {
			f.t.Fatal("not all was saved: ", f.s.Err())
		}
	},
	"more writes": func(f *ownTest) {
		for i := range 40 {
			f.must(f.s.Update(configMap("z", "other", 1, map[string]string{"words": fmt.Sprint(i)})))
		}
		f.must(f.s.Update(configMap("z", "other", 1, nil)))
	},
}

// TestOwnWrites: readers see own writes, and handlers are told the server's changes,
// whether or not the program has stored them first.
func TestOwnWrites(t *testing.T) {
	for _, tc := range ownCases {
		for how, meanwhile := range between {
			for _, way := range []string{"event", "list", "staged list", "raw list", "staged raw list"} {
				bring, o := tc.event, Options{Window: time.Nanosecond, Durability: DurabilityProcess}
				if way != "event" {
					bring = tc.list
				}
				if bring == nil {
					continue
				}
				if strings.HasPrefix(way, "staged") {
					o.maxCommitBytes = 1
				}
				t.Run(tc.name+"/"+how+"/"+way, func(t *testing.T) {
					f := newOwnTest(t, o)
					f.list(5, tc.before...)
					f.from, f.raw = f.s.State().Seq+1, strings.HasSuffix(way, "raw list")
					f.must(tc.own(f.s))
					check := func(what, read, replay string) {
						t.Helper()
						if got := f.read(); got != read {
							t.Fatalf("%s: %s is read, and should be %s", what, got, read)
						}
						if got := f.replay(); got != replay {
							t.Fatalf("%s: %s is shown, and should be %s", what, got, replay)
						}
						if r, err := f.db.Check(); err != nil || !r.Sound() {
							t.Fatalf("%s: %+v %v", what, r, err)
						}
					}
					check("written", tc.read, tc.replay)
					meanwhile(f)
					check("meanwhile", tc.read, tc.replay)
					if rv := f.s.State().ResourceVersion; rv != "5" {
						t.Fatal("the program's write has moved the resume point to ", rv)
					}
					bring(f)
					told := tc.told
					if way != "event" { // a list does not tell the final state
						told = strings.ReplaceAll(told, "Deleted 8x", "Deleted ?5x")
						told = strings.ReplaceAll(told, "Deleted 7x", "Deleted ?5x")
						told = strings.ReplaceAll(told, "Deleted 7w", "Deleted ?6w")
						told = strings.ReplaceAll(told, "Deleted 8y", "Deleted ?7y")
					}
					if got := f.told(); got != told {
						t.Fatalf("told %q, not %q", got, told)
					}
					if got := f.read(); got != tc.left {
						t.Fatalf("%s is read at last, and should be %s", got, tc.left)
					}
					if got := f.bases(); got != tc.keeps {
						t.Fatalf("%d bases are kept, not %d", got, tc.keeps)
					}
				})
			}
		}
	}
}
