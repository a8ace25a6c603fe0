package boltstore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

var configMaps = Source{Version: "v1", Resource: "configmaps", Form: FormTyped}

// indexers index by namespace, by words (several values, none, odd bytes) and by
// a value longer than bbolt's keys may be.
var indexers = cache.Indexers{
	cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
	"words": func(o any) ([]string, error) {
		return strings.Split(o.(*corev1.ConfigMap).Data["words"], ","), nil
	},
	"long": func(o any) ([]string, error) { return []string{o.(*corev1.ConfigMap).Data["long"]}, nil },
	"":     func(o any) ([]string, error) { return nil, nil },
}

func randomMap(r *rand.Rand, rv int) *corev1.ConfigMap {
	words := []string{"", "a", "b", "a\x00b", "a\x00", "\xff", "\xff\xff", "ab"}
	return configMap(fmt.Sprint("ns", r.IntN(3)), fmt.Sprint("cm", r.IntN(12)), rv, map[string]string{
		"words": words[r.IntN(len(words))] + "," + words[r.IntN(len(words))],
		"long":  strings.Repeat(words[r.IntN(len(words))], r.IntN(3)*20000),
	})
}

// TestStoreIsAnIndexer runs random programs side by side with client-go's.
func TestStoreIsAnIndexer(t *testing.T) {
	for _, memory := range []int64{1 << 30, -1, 300_000} {
		t.Run(fmt.Sprint("memory ", memory), func(t *testing.T) {
			testStoreIsAnIndexer(t, Options{ObjectMemory: memory})
		})
	}
}

func testStoreIsAnIndexer(t *testing.T, o Options) {
	path := testPath(t)
	db := openTest(t, path, o)
	store := claimTest(t, db, Claim{Indexers: indexers})
	model := cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, indexers)
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 1))
		for step := range 60 {
			rv := int(seed)*1000 + step + 1
			both(t, model, store, randomWrite(r, rv))
			if step%10 == 9 {
				waitMemory(store)
				sameInMemory(t, store.source)
				compareIndexers(t, model, store)
			}
		}
		store.Release()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		db = openTest(t, path, o)
		store = claimTest(t, db, Claim{Indexers: indexers})
		compareIndexers(t, model, store)
	}
}

func both(t *testing.T, model, store cache.Indexer, write func(cache.Indexer) error) {
	t.Helper()
	if a, b := write(model), write(store); (a == nil) != (b == nil) {
		t.Fatalf("client-go: %v, ours: %v", a, b)
	}
}

func randomWrite(r *rand.Rand, rv int) func(cache.Indexer) error {
	obj := randomMap(r, rv)
	switch r.IntN(10) {
	case 0, 1, 2:
		return func(i cache.Indexer) error { return i.Add(obj) }
	case 3, 4, 5:
		return func(i cache.Indexer) error { return i.Update(obj) }
	case 6:
		return func(i cache.Indexer) error { return i.Delete(obj) }
	case 7:
		return func(i cache.Indexer) error {
			return i.Delete(cache.DeletedFinalStateUnknown{Key: obj.Namespace + "/" + obj.Name})
		}
	case 8:
		objs := []any{obj}
		for range r.IntN(8) {
			objs = append(objs, randomMap(r, rv))
		}
		return func(i cache.Indexer) error { return i.Replace(objs, fmt.Sprint(rv)) }
	}
	other := randomMap(r, rv)
	return func(i cache.Indexer) error {
		err := i.(cache.TransactionStore).Transaction(
			cache.Transaction{Type: cache.TransactionTypeAdd, Object: obj},
			cache.Transaction{Type: cache.TransactionTypeDelete, Object: other})
		if err != nil {
			return err
		}
		return nil
	}
}

func compareIndexers(t *testing.T, model, store cache.Indexer) {
	t.Helper()
	same(t, "ListKeys", sorted(model.ListKeys()), sorted(store.ListKeys()))
	sameObjects(t, "List", model.List(), store.List())
	for _, key := range append(model.ListKeys(), "none", "") {
		a, aok, aerr := model.GetByKey(key)
		b, bok, berr := store.GetByKey(key)
		if aok != bok || aerr != nil || berr != nil || !apiequality.Semantic.DeepEqual(a, b) {
			t.Fatalf("GetByKey(%q): %.300q %v %v, ours %.300q %v %v", key, fmt.Sprint(a), aok, aerr, fmt.Sprint(b),
				bok, berr)
		}
	}
	for name := range indexers {
		same(t, "ListIndexFuncValues", sorted(model.ListIndexFuncValues(name)), sorted(store.ListIndexFuncValues(name)))
		for _, v := range append(model.ListIndexFuncValues(name), "none") {
			a, _ := model.IndexKeys(name, v)
			b, err := store.IndexKeys(name, v)
			if err != nil || !slices.IsSorted(b) {
				t.Fatalf("IndexKeys: %v %v", b, err)
			}
			same(t, "IndexKeys", sorted(a), b)
			ao, _ := model.ByIndex(name, v)
			bo, err := store.ByIndex(name, v)
			if err != nil {
				t.Fatal(err)
			}
			sameObjects(t, "ByIndex", ao, bo)
		}
		for _, obj := range model.List() {
			ao, _ := model.Index(name, obj)
			bo, err := store.Index(name, obj)
			if err != nil {
				t.Fatal(err)
			}
			sameObjects(t, "Index", ao, bo)
		}
	}
	for _, i := range []cache.Indexer{model, store} {
		_, err := i.ByIndex("nope", "")
		_, err2 := i.IndexKeys("nope", "")
		_, err3 := i.Index("nope", &corev1.ConfigMap{})
		for _, err := range []error{err, err2, err3} {
			if err == nil || err.Error() != "Index with name nope does not exist" {
				t.Fatalf("%T: unknown index: %v", i, err)
			}
		}
	}
	// ListAllByNamespace indexes with only an ObjectMeta.
	ao, _ := model.Index(cache.NamespaceIndex, &metav1.ObjectMeta{Namespace: "ns1"})
	bo, err := store.Index(cache.NamespaceIndex, &metav1.ObjectMeta{Namespace: "ns1"})
	if err != nil {
		t.Fatal(err)
	}
	sameObjects(t, "Index(ObjectMeta)", ao, bo)
}

func sorted(s []string) []string { slices.Sort(s); return s }

func same(t *testing.T, what string, a, b []string) {
	t.Helper()
	if !slices.Equal(a, b) {
		t.Fatalf("%s: client-go has %q, ours %q", what, a, b)
	}
}

func TestErrorsOfClientGo(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	store := claimTest(t, db, Claim{Indexers: indexers})
	model := cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, indexers)
	for _, i := range []cache.Indexer{model, store} {
		var key cache.KeyError
		if err := i.Add("no object"); !errors.As(err, &key) {
			t.Errorf("%T: Add: %v", i, err)
		}
		if _, _, err := i.Get("no object"); !errors.As(err, &key) {
			t.Errorf("%T: Get: %v", i, err)
		}
		if err := i.AddIndexers(indexers); err == nil || !strings.HasPrefix(err.Error(), "indexer conflict: map[") {
			t.Errorf("%T: AddIndexers: %v", i, err)
		}
		err := i.(cache.TransactionStore).Transaction(
			cache.Transaction{Type: cache.TransactionTypeAdd, Object: "no object"},
			cache.Transaction{Type: cache.TransactionTypeAdd, Object: configMap("a", "b", 1, nil)})
		if err == nil || err.TotalTransactions != 2 || !slices.Equal(err.SuccessfulIndices, []int{1}) ||
			len(err.Errors) != 1 {
			t.Errorf("%T: Transaction: %+v", i, err)
		}
	}
}

// TestIndexersChange adds, changes and drops indices between lives. In each life they
// must equal those computed from the objects.
func TestIndexersChange(t *testing.T) {
	path := testPath(t)
	by := func(field string) cache.IndexFunc {
		return func(o any) ([]string, error) { return []string{o.(*corev1.ConfigMap).Data[field]}, nil }
	}
	lives := []struct {
		field, version string
		write          bool
		without        bool
	}{
		{field: "a", version: "1", write: true},
		{field: "b", version: "2"},
		{without: true, write: true},
		{field: "b", version: "2"},
		{field: "a", version: "3", write: true},
	}
	for n, life := range lives {
		db := openTest(t, path, Options{})
		s := claimTest(t, db, Claim{})
		if !life.without {
			s.indices.versions = map[string]string{"f": life.version}
			if err := s.AddIndexers(cache.Indexers{"f": by(life.field)}); err != nil {
				t.Fatal(err)
			}
		}
		if life.write {
			for i := range 20 {
				obj := configMap("ns", fmt.Sprint(i), n*100+i+1,
					map[string]string{"a": fmt.Sprint(i % 3), "b": fmt.Sprint(i%5 + n)})
				if err := s.Add(obj); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !life.without {
			model := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{"f": by(life.field)})
			if err := model.Replace(s.List(), ""); err != nil {
				t.Fatal(err)
			}
			same(t, fmt.Sprint("life ", n), sorted(model.ListIndexFuncValues("f")), sorted(s.ListIndexFuncValues("f")))
			for _, v := range model.ListIndexFuncValues("f") {
				a, _ := model.IndexKeys("f", v)
				b, _ := s.IndexKeys("f", v)
				same(t, fmt.Sprint("life ", n, " value ", v), sorted(a), b)
			}
		}
		closeTest(t, db)
	}
}

func TestClaims(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	if _, err := db.Claim(Claim{Source: configMaps, Example: &corev1.ConfigMap{}}); !errors.Is(err, ErrClaimed) {
		t.Fatalf("second claim: %v", err)
	}
	s.Release()
	claimTest(t, db, Claim{}).Feed.Attach(&testProducer{})
	if _, err := db.Claim(Claim{Source: Source{Resource: "x"}, Example: &corev1.ConfigMap{}}); err == nil {
		t.Fatal("a source without version was accepted")
	}
	err := db.Close()
	if err == nil || !strings.Contains(err.Error(), "configmaps/v1") {
		t.Fatalf("Close does not say what still ran: %v", err)
	}
	if err := s.Add(configMap("a", "b", 1, nil)); !errors.Is(err, ErrClosed) {
		t.Fatalf("write after close: %v", err)
	}
	if _, _, err := s.GetByKey("a/b"); !errors.Is(err, ErrClosed) {
		t.Fatalf("read after close: %v", err)
	}
	if got := s.List(); len(got) != 0 {
		t.Fatalf("list after close: %v", got)
	}
}
