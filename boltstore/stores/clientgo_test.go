package stores_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/stores"
)

// The scenarios of client-go's own tests of its stores. Each runs on client-go's and on
// ours.

// expirations make a store with a policy.
var expirations = map[string]func(t *testing.T, policy cache.ExpirationPolicy) cache.Store{
	"client-go": func(t *testing.T, policy cache.ExpirationPolicy) cache.Store {
		return cache.NewFakeExpirationStore(tokenKey, make(chan string, 100), policy, clock.RealClock{})
	},
	"ours": func(t *testing.T, policy cache.ExpirationPolicy) cache.Store {
		return must(stores.NewExpirationStore(newClaim(t), policy))(t)
	},
}

func never(names ...string) *cache.FakeExpirationPolicy {
	return &cache.FakeExpirationPolicy{NeverExpire: sets.New(names...), RetrieveKeyFunc: func(obj any) (string, error) {
		return obj.(*cache.TimestampedEntry).Obj.(*token).Name, nil
	}}
}

// TestExpirationsOfClientGo is client-go's TestTTLExpirationBasic, TestReAddExpiredItem
// and TestTTLList.
func TestExpirationsOfClientGo(t *testing.T) {
	for name, make := range expirations {
		t.Run(name, func(t *testing.T) {
			policy := never()
			s := make(t, policy)
			foo := &token{"foo", "bar"}
			gone := func(item any, exists bool, err error) {
				t.Helper()
				if item != nil || exists || err != nil {
					t.Fatal(item, exists, err)
				}
			}
			must(0, s.Add(foo))(t)
			if keys := s.ListKeys(); len(keys) != 1 { // it was not read
				t.Fatal(keys)
			}
			gone(s.Get(foo))
			if keys := s.ListKeys(); len(keys) != 0 {
				t.Fatal("an expired entry is still there: ", keys)
			}
			must(0, s.Add(&token{"foo", "different"}))(t)
			policy.NeverExpire.Insert("foo")
			if item, exists, err := s.GetByKey("foo"); err != nil || !exists || item.(*token).Value != "different" {
				t.Fatal(item, exists, err)
			}
			policy.NeverExpire.Delete("foo")
			gone(s.GetByKey("foo"))

			policy.NeverExpire.Insert("foo1")
			for i, name := range []string{"foo", "foo1", "foo2"} {
				must(0, s.Add(&token{name, fmt.Sprint(i)}))(t)
			}
			if got := s.List(); text(got) != "[foo1=1]" {
				t.Fatal(text(got))
			}
			if keys := s.ListKeys(); !reflect.DeepEqual(keys, []string{"foo1"}) {
				t.Fatal("expired entries are still there: ", keys)
			}
			must(0, s.Resync())(t)
			var keyErr cache.KeyError
			if err := s.Add("no token"); !errors.As(err, &keyErr) {
				t.Error(err)
			}
			if _, _, err := s.Get("no token"); !errors.As(err, &keyErr) || keyErr.Obj != "no token" {
				t.Error(err)
			}
		})
	}
}

// TestStoresOfClientGo is client-go's doTestStore, on each of our stores.
func TestStoresOfClientGo(t *testing.T) {
	for name, s := range map[string]cache.Store{
		"client-go":                cache.NewStore(tokenKey),
		"client-go's UndeltaStore": cache.NewUndeltaStore(func([]any) {}, tokenKey),
		"claimed":                  newClaim(t),
		"UndeltaStore over it":     &cache.UndeltaStore{Store: newClaim(t), PushFunc: func([]any) {}},
		"TTLStore":                 must(stores.NewTTLStore(newClaim(t), 0))(t),
	} {
		t.Run(name, func(t *testing.T) {
			value := func(want string) {
				t.Helper()
				item, ok, err := s.Get(&token{Name: "foo"})
				if err != nil || ok != (want != "") || ok && item.(*token).Value != want {
					t.Fatal(item, ok, err)
				}
			}
			must(0, s.Add(&token{"foo", "bar"}))(t)
			value("bar")
			must(0, s.Update(&token{"foo", "baz"}))(t)
			value("baz")
			must(0, s.Delete(&token{"foo", ""}))(t)
			value("")
			for _, n := range []string{"a", "c", "e"} {
				must(0, s.Add(&token{n, n + n}))(t)
			}
			if got := text(s.List()); got != "[a=aa c=cc e=ee]" {
				t.Fatal(got)
			}
			must(0, s.Replace([]any{&token{"foo", "foo"}, &token{"bar", "bar"}}, "0"))(t)
			if got := text(s.List()); got != "[bar=bar foo=foo]" {
				t.Fatal(got)
			}
			if rv := s.LastStoreSyncResourceVersion(); rv != "0" {
				t.Fatal(rv)
			}
		})
	}
}

// TestUndeltaStoresOfClientGo is client-go's TestUpdateCallsPush, TestDeleteCallsPush,
// TestReplaceCallsPush and TestReadsDoNotCallPush, with client-go's UndeltaStore over
// ours.
func TestUndeltaStoresOfClientGo(t *testing.T) {
	var got []any
	calls := 0
	push := func(objs []any) { calls, got = calls+1, objs }
	for name, u := range map[string]*cache.UndeltaStore{
		"client-go": cache.NewUndeltaStore(push, tokenKey),
		"ours":      {Store: newClaim(t), PushFunc: push},
	} {
		t.Run(name, func(t *testing.T) {
			calls = 0
			pushed := func(n int, want string) {
				t.Helper()
				if calls != n || text(got) != want {
					t.Fatal(calls, text(got))
				}
			}
			must(0, u.Add(&token{"a", "2"}))(t)
			must(0, u.Update(&token{"a", "1"}))(t)
			pushed(2, "[a=1]")
			must(0, u.Delete(&token{"a", ""}))(t)
			pushed(3, "[]")
			must(0, u.Replace([]any{&token{"a", "1"}}, "0"))(t)
			pushed(4, "[a=1]")
			u.List()
			if _, exists, err := u.Get(&token{"a", ""}); !exists || err != nil {
				t.Fatal(exists, err)
			}
			pushed(4, "[a=1]")
		})
	}
}

// keyedStores make stores by key.
var keyedStores = map[string]func(t *testing.T) cache.ThreadSafeStoreWithTransaction{
	"client-go": func(t *testing.T) cache.ThreadSafeStoreWithTransaction {
		return cache.NewThreadSafeStore(cache.Indexers{"word": byWord["word"]},
			cache.Indices{}).(cache.ThreadSafeStoreWithTransaction)
	},
	"ours": func(t *testing.T) cache.ThreadSafeStoreWithTransaction {
		return must(stores.NewThreadSafeStore(newClaim(t), func(err error) { t.Error(err) }))(t)
	},
	"ours in memory": func(t *testing.T) cache.ThreadSafeStoreWithTransaction {
		s := claim(t, open(t, newPath(t), boltstore.Options{ObjectMemory: 1 << 20}))
		return must(stores.NewThreadSafeStore(s, func(err error) { t.Error(err) }))(t)
	},
}

// TestThreadSafeStoresOfClientGo has the cases for indices of client-go's tests of its
// ThreadSafeStore: no values without objects, and values that come and go.
func TestThreadSafeStoresOfClientGo(t *testing.T) {
	for name, make := range keyedStores {
		t.Run(name, func(t *testing.T) {
			s := make(t)
			index := func(want string) {
				t.Helper()
				var all []string
				for _, v := range sorted(s.ListIndexFuncValues("word")) {
					all = append(all, v+":"+strings.Join(sorted(must(s.IndexKeys("word", v))(t)), ","))
				}
				if got := strings.Join(all, " "); got != want {
					t.Fatalf("%q, want %q", got, want)
				}
			}
			v := func(words string) *token { return &token{"whatever", words} }
			s.Add("retain", v("x"))
			s.Add("delete", v("x y"))
			index("x:delete,retain y:delete")
			s.Delete("delete")
			index("x:retain")
			s.Delete("retain")
			index("")
			s.Add("key1", v("foo"))
			s.Add("key2", v("bar"))
			index("bar:key2 foo:key1")
			s.Update("key2", v("foo bar"))
			index("bar:key2 foo:key1,key2")
			s.Update("key1", v("foo bar"))
			index("bar:key1,key2 foo:key1,key2")
			s.Add("key3", v("foo bar baz"))
			index("bar:key1,key2,key3 baz:key3 foo:key1,key2,key3")
			s.Update("key1", v("foo"))
			s.Update("key2", v("bar"))
			index("bar:key2,key3 baz:key3 foo:key1,key3")
			s.Delete("key1")
			s.DeleteWithObject("key3", v("foo bar baz"))
			index("bar:key2")
			must(0, s.AddIndexers(cache.Indexers{"length": func(obj any) ([]string, error) {
				return []string{fmt.Sprint(len(obj.(*token).Value))}, nil
			}}))(t)
			if got := must(s.ByIndex("length", "3"))(t); text(got) != "[whatever=bar]" {
				t.Fatal(text(got))
			}
			if got := must(s.Index("length", v("123")))(t); text(got) != "[whatever=bar]" {
				t.Fatal(text(got))
			}
			if len(s.GetIndexers()) != 2 || s.Resync() != nil {
				t.Fatal(s.GetIndexers())
			}
			if _, err := s.ByIndex("none", "x"); err == nil || err.Error() != "Index with name none does not exist" {
				t.Fatal(err)
			}
		})
	}
}

// TestVersionsOfClientGo is client-go's TestThreadSafeStoreRV.
func TestVersionsOfClientGo(t *testing.T) {
	if !clientfeatures.FeatureGates().Enabled(clientfeatures.AtomicFIFO) {
		t.Fatal("client-go's store does not state its version")
	}
	at := func(rv string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: rv}}
	}
	txn := func(key, rv string) cache.ThreadSafeStoreTransaction {
		return cache.ThreadSafeStoreTransaction{Key: key,
			Transaction: cache.Transaction{Object: at(rv), Type: cache.TransactionTypeUpdate}}
	}
	configMaps, err := open(t, newPath(t), boltstore.Options{}).Claim(boltstore.Claim{
		Source:  boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped},
		Example: &corev1.ConfigMap{}})
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]cache.ThreadSafeStoreWithTransaction{
		"client-go": cache.NewThreadSafeStore(cache.Indexers{}, cache.Indices{}).(cache.ThreadSafeStoreWithTransaction),
		"ours":      must(stores.NewThreadSafeStore(configMaps, func(err error) { t.Error(err) }))(t),
	} {
		t.Run(name, func(t *testing.T) {
			is := func(want string) {
				t.Helper()
				if rv := s.LastStoreSyncResourceVersion(); rv != want {
					t.Fatalf("%q, want %q", rv, want)
				}
			}
			is("")
			s.Add("key1", at("10"))
			is("10")
			s.Add("key3", at("10"))
			is("10")
			s.Add("key4", at("20"))
			is("20")
			s.DeleteWithObject("key4", at("30"))
			is("30")
			s.Add("key6", at("40"))
			is("40")
			s.Delete("key6")
			is("40")
			s.Transaction(txn("key9", "40"), txn("key10", "30"), txn("key11", "50"))
			is("50")
			s.Transaction()
			is("50")
			s.Bookmark("55")
			is("55")
			s.Replace(map[string]any{"key3": at("40"), "key2": at("30")}, "60")
			is("60")
			s.DeleteWithObject("key3", at("70"))
			is("70")
			if keys := s.ListKeys(); !reflect.DeepEqual(keys, []string{"key2"}) {
				t.Fatal(keys)
			}
		})
	}
}

// TestErrorsByKey: an object that cannot be stored is reported, and the rest of a
// transaction is stored.
func TestErrorsByKey(t *testing.T) {
	db := open(t, newPath(t), boltstore.Options{})
	var errs []error
	s := must(stores.NewThreadSafeStore(claim(t, db), func(err error) { errs = append(errs, err) }))(t)
	reported := func(what string, is error) {
		t.Helper()
		if len(errs) != 1 || is != nil && !errors.Is(errs[0], is) {
			t.Fatalf("%s: %v", what, errs)
		}
		errs = nil
	}
	s.Add("a", "no object")
	reported("another type", nil)
	s.Add("a", nil)
	reported("nil", nil)
	s.Transaction(
		cache.ThreadSafeStoreTransaction{Key: "a",
			Transaction: cache.Transaction{Object: &token{"x", "1"}, Type: cache.TransactionTypeAdd}},
		cache.ThreadSafeStoreTransaction{Key: "b",
			Transaction: cache.Transaction{Object: &corev1.Pod{}, Type: cache.TransactionTypeAdd}},
		cache.ThreadSafeStoreTransaction{Key: "c",
			Transaction: cache.Transaction{Object: &token{"y", "2"}, Type: "Patch"}},
	)
	reported("a transaction", nil)
	s.Replace(map[string]any{"a": &token{"x", "3"}, "b": &corev1.Pod{}}, "5")
	reported("a replacement", nil)
	if got := text(s.List()); got != "[x=1]" {
		t.Fatal(got)
	}
	must(0, db.Close())(t)
	s.Add("a", &token{"x", "1"})
	reported("a closed file", boltstore.ErrClosed)
	if _, exists := s.Get("a"); exists {
		t.Error("it is there")
	}
	reported("a read of a closed file", boltstore.ErrClosed)
	s.List()
	reported("a list of a closed file", boltstore.ErrClosed)
	s.ListKeys()
	reported("a list of keys of a closed file", boltstore.ErrClosed)
	s.Bookmark("6")
	reported("a bookmark in a closed file", boltstore.ErrClosed)
}

// TestTTLPolicy is client-go's: an entry expires after the TTL, not exactly on it, and
// never with a TTL of 0 or less.
func TestTTLPolicy(t *testing.T) {
	for _, ttl := range []time.Duration{30 * time.Second, 0, -1} {
		clk := fakeClock()
		s := must(stores.NewTTLStore(claim(t, open(t, newPath(t), boltstore.Options{Clock: clk})), ttl))(t)
		must(0, s.Add(&token{"foo", "bar"}))(t)
		there := func(want bool) {
			t.Helper()
			if _, exists, err := s.GetByKey("foo"); err != nil || exists != want {
				t.Fatal(ttl, exists, err)
			}
		}
		clk.Step(30 * time.Second)
		there(true)
		clk.Step(1)
		there(ttl <= 0)
	}
}
