package stores_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
	"pgregory.net/rapid"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/stores"
)

func fakeClock() *testingclock.FakeClock {
	return testingclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC))
}

// TestExpirationModel: random programs get the same answers from client-go's expiration
// cache and ours, whose file is closed and opened between.
func TestExpirationModel(t *testing.T) {
	dir, runs := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		path, clk := filepath.Join(dir, fmt.Sprint(runs, ".db")), fakeClock()
		policy := &cache.TTLPolicy{TTL: time.Minute, Clock: clk}
		removed := make(chan string, 1000)
		theirs := cache.NewFakeExpirationStore(tokenKey, removed, policy, clk)
		o := boltstore.Options{Clock: clk, ObjectMemory: rapid.SampledFrom([]int64{-1, 1 << 20}).Draw(rt, "memory")}
		db := open(t, path, o)
		ours := must(stores.NewExpirationStore(claim(t, db), policy))(t)
		defer func() { closeDB(t, db) }()
		name := func() string { return rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(rt, "name") }
		some := func() *token { return &token{name(), fmt.Sprint(rapid.IntRange(0, 3).Draw(rt, "value"))} }
		same := func(what string, a, b any) {
			t.Helper()
			if x, y := fmt.Sprint(a), fmt.Sprint(b); x != y {
				rt.Fatalf("%s: client-go %s, ours %s", what, x, y)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				o := some()
				same("Add", theirs.Add(o), ours.Add(o))
			},
			"update": func(rt *rapid.T) {
				o := some()
				same("Update", theirs.Update(o), ours.Update(o))
			},
			"delete": func(rt *rapid.T) {
				o := some()
				same("Delete", theirs.Delete(o), ours.Delete(o))
			},
			"get": func(rt *rapid.T) {
				n := name()
				a, ok1, err1 := theirs.GetByKey(n)
				b, ok2, err2 := ours.Get(&token{Name: n})
				same("Get", shown(a, ok1, err1), shown(b, ok2, err2))
			},
			"list": func(rt *rapid.T) { same("List", text(theirs.List()), text(ours.List())) },
			"replace": func(rt *rapid.T) {
				objs := []any{some(), some()}
				rv := fmt.Sprint(rapid.IntRange(1, 9).Draw(rt, "version"))
				same("Replace", theirs.Replace(objs, rv), ours.Replace(objs, rv))
			},
			"bookmark": func(rt *rapid.T) {
				rv := fmt.Sprint(rapid.IntRange(1, 9).Draw(rt, "version"))
				theirs.Bookmark(rv)
				ours.Bookmark(rv)
			},
			"wait": func(rt *rapid.T) {
				clk.Step(rapid.SampledFrom([]time.Duration{1, time.Second, 20 * time.Second, time.Minute,
					time.Minute + 1}).Draw(rt, "time"))
			},
			"open again": func(rt *rapid.T) {
				closeDB(t, db)
				db = open(t, path, o)
				ours = must(stores.NewExpirationStore(claim(t, db), policy))(t)
				theirs.List() // opening removes what has expired
			},
			"": func(rt *rapid.T) {
				same("ListKeys", sorted(theirs.ListKeys()), sorted(ours.ListKeys()))
				same("version", theirs.LastStoreSyncResourceVersion(), ours.LastStoreSyncResourceVersion())
				for len(removed) > 0 {
					<-removed
				}
			},
		})
	})
}

// oddWords are index functions whose values repeat, are empty, long, or not text. "none"
// has no values.
var oddWords = cache.Indexers{
	"word": byWord["word"],
	"odd": func(obj any) ([]string, error) {
		v := obj.(*token).Value
		return []string{v, "", v + "\x00", strings.Repeat(v, 600), v, "\xff" + obj.(*token).Name}, nil
	},
	"none": func(any) ([]string, error) { return nil, nil },
}

// TestThreadSafeModel: random programs get the same answers from client-go's
// ThreadSafeStore and ours, also where indices are added to a full store or do not exist.
func TestThreadSafeModel(t *testing.T) {
	dir, runs := t.TempDir(), 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		path := filepath.Join(dir, fmt.Sprint(runs, ".db"))
		o := boltstore.Options{ObjectMemory: rapid.SampledFrom([]int64{-1, 1 << 20}).Draw(rt, "memory")}
		db := open(t, path, o)
		defer func() { closeDB(t, db) }()
		reopened := func() cache.ThreadSafeStoreWithTransaction {
			return must(stores.NewThreadSafeStore(claim(t, db), func(err error) { rt.Error(err) }))(t)
		}
		long := strings.Repeat("k", 40_000)
		ours := reopened()
		theirs := cache.NewThreadSafeStore(cache.Indexers{"word": byWord["word"]},
			cache.Indices{}).(cache.ThreadSafeStoreWithTransaction)
		both := []cache.ThreadSafeStoreWithTransaction{theirs, ours}
		key := func() string {
			return rapid.SampledFrom([]string{"", "a", "b/c", "b", "ä\x00", "\xff\xff", long, long + "/b"}).Draw(rt,
				"key")
		}
		some := func() *token {
			return &token{rapid.SampledFrom([]string{"n", "m"}).Draw(rt, "name"),
				rapid.SampledFrom([]string{"", "x", "x y", "y", "z x"}).Draw(rt, "value")}
		}
		same := func(what string, call func(cache.ThreadSafeStore) any) {
			t.Helper()
			if a, b := fmt.Sprint(call(theirs)), fmt.Sprint(call(ours)); a != b {
				rt.Fatalf("%s: client-go %s, ours %s", what, a, b)
			}
		}
		each := func(call func(cache.ThreadSafeStoreWithTransaction)) {
			for _, s := range both {
				call(s)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				k, o := key(), some()
				each(func(s cache.ThreadSafeStoreWithTransaction) { s.Add(k, o) })
			},
			"update": func(rt *rapid.T) {
				k, o := key(), some()
				each(func(s cache.ThreadSafeStoreWithTransaction) { s.Update(k, o) })
			},
			"delete": func(rt *rapid.T) {
				k := key()
				each(func(s cache.ThreadSafeStoreWithTransaction) { s.Delete(k) })
			},
			"transaction": func(rt *rapid.T) {
				var txns []cache.ThreadSafeStoreTransaction
				for range rapid.IntRange(0, 4).Draw(rt, "writes") {
					typ := rapid.SampledFrom([]cache.TransactionType{cache.TransactionTypeAdd,
						cache.TransactionTypeUpdate, cache.TransactionTypeDelete, "none"}).Draw(rt, "type")
					txns = append(txns, cache.ThreadSafeStoreTransaction{Key: key(),
						Transaction: cache.Transaction{Object: some(), Type: typ}})
				}
				each(func(s cache.ThreadSafeStoreWithTransaction) { s.Transaction(txns...) })
			},
			"replace": func(rt *rapid.T) {
				one, two, a, b := key(), key(), some(), some()
				rv := fmt.Sprint(rapid.IntRange(1, 9).Draw(rt, "version"))
				each(func(s cache.ThreadSafeStoreWithTransaction) { s.Replace(map[string]any{one: a, two: b}, rv) })
			},
			"open again": func(rt *rapid.T) {
				closeDB(t, db)
				db = open(t, path, o)
				ours = reopened()
				both[1] = ours
				for name, fn := range theirs.GetIndexers() {
					if name != "word" {
						must(0, ours.AddIndexers(cache.Indexers{name: fn}))(t)
					}
				}
			},
			"add indices": func(rt *rapid.T) {
				add := cache.Indexers{}
				for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"word", "odd", "none"}), 0, 3,
					rapid.ID).Draw(rt, "indices") {
					add[name] = oddWords[name]
				}
				same("AddIndexers", func(s cache.ThreadSafeStore) any { return s.AddIndexers(add) })
			},
			"": func(rt *rapid.T) {
				k := key()
				same("Get", func(s cache.ThreadSafeStore) any { o, ok := s.Get(k); return shown(o, ok, nil) })
				same("List", func(s cache.ThreadSafeStore) any { return text(s.List()) })
				same("ListKeys", func(s cache.ThreadSafeStore) any { return sorted(s.ListKeys()) })
				same("version", func(s cache.ThreadSafeStore) any { return s.LastStoreSyncResourceVersion() })
				o, v := some(), rapid.SampledFrom([]string{"", "x", "y", "z", "\x00", "x\x00", "\xffn",
					strings.Repeat("x", 600), strings.Repeat("x y", 600)}).Draw(rt, "asked")
				for _, name := range []string{"word", "odd", "none", "", "no index"} {
					same("ListIndexFuncValues "+name, func(s cache.ThreadSafeStore) any {
						return sorted(s.ListIndexFuncValues(name))
					})
					same("Index "+name, func(s cache.ThreadSafeStore) any {
						objs, err := s.Index(name, o)
						return fmt.Sprint(text(objs), err)
					})
					same("ByIndex "+name, func(s cache.ThreadSafeStore) any {
						objs, err := s.ByIndex(name, v)
						return fmt.Sprint(text(objs), err)
					})
					same("IndexKeys "+name, func(s cache.ThreadSafeStore) any {
						keys, err := s.IndexKeys(name, v)
						return fmt.Sprint(sorted(keys), err)
					})
				}
			},
		})
	})
}
