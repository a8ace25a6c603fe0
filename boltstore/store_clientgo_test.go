package boltstore

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/client-go/tools/cache"
)

// storeCalls are calls of cache.Indexer whose answers are compared with client-go's
// exactly: an empty slice is not a nil one.
var storeCalls = map[string]func(i cache.Indexer) any{
	"List":                        func(i cache.Indexer) any { return i.List() },
	"ListKeys":                    func(i cache.Indexer) any { return i.ListKeys() },
	"ListIndexFuncValues":         func(i cache.Indexer) any { return i.ListIndexFuncValues("words") },
	"ListIndexFuncValues of none": func(i cache.Indexer) any { return i.ListIndexFuncValues("no index") },
	"IndexKeys":                   func(i cache.Indexer) any { return answer(i.IndexKeys("words", "x")) },
	"IndexKeys of none":           func(i cache.Indexer) any { return answer(i.IndexKeys("words", "none")) },
	"IndexKeys of no index":       func(i cache.Indexer) any { return answer(i.IndexKeys("no index", "x")) },
	"ByIndex":                     func(i cache.Indexer) any { return answer(i.ByIndex("words", "x")) },
	"ByIndex of none":             func(i cache.Indexer) any { return answer(i.ByIndex("words", "none")) },
	"ByIndex of no index":         func(i cache.Indexer) any { return answer(i.ByIndex("no index", "x")) },
	"Index":                       func(i cache.Indexer) any { return answer(i.Index("words", at(1, "x"))) },
	"Index of none":               func(i cache.Indexer) any { return answer(i.Index("words", at(1, "none"))) },
	"Index of no index":           func(i cache.Indexer) any { return answer(i.Index("no index", at(1, "x"))) },
	"Index of no values":          func(i cache.Indexer) any { return answer(i.Index("", at(1, "x"))) },
	"Get":                         func(i cache.Indexer) any { return found(i.Get(at(1, ""))) },
	"GetByKey":                    func(i cache.Indexer) any { return found(i.GetByKey("a/o")) },
	"GetByKey of none":            func(i cache.Indexer) any { return found(i.GetByKey("a/none")) },
	"Resync":                      func(i cache.Indexer) any { return i.Resync() },
	"GetIndexers": func(i cache.Indexer) any {
		return len(i.GetIndexers())
	},
	"LastStoreSyncResourceVersion": func(i cache.Indexer) any { return i.LastStoreSyncResourceVersion() },
	"Transaction of nothing":       func(i cache.Indexer) any { return i.(cache.TransactionStore).Transaction() },
	"Transaction of what has no key": func(i cache.Indexer) any {
		return i.(cache.TransactionStore).Transaction(cache.Transaction{Type: cache.TransactionTypeAdd,
			Object: "no object"})
	},
	"Transaction of some": func(i cache.Indexer) any {
		return i.(cache.TransactionStore).Transaction(cache.Transaction{Type: cache.TransactionTypeAdd,
			Object: "no object"},
			cache.Transaction{Type: cache.TransactionTypeUpdate,
				Object: configMap("z", "t", 40, map[string]string{"words": "t"})},
			cache.Transaction{Type: cache.TransactionTypeDelete, Object: configMap("z", "t", 41, nil)})
	},
	"Replace by what has no key": func(i cache.Indexer) any { return i.Replace([]any{"no object"}, "1") },
	"AddIndexers again": func(i cache.Indexer) any {
		return fmt.Sprint(i.AddIndexers(cache.Indexers{"words": indexers["words"]}))
	},
}

func answer(v any, err error) any { return []any{v, fmt.Sprint(err)} }

func found(obj any, ok bool, err error) any { return []any{obj, ok, err} }

// storeWrites are programs of writes that run on both stores.
var storeWrites = map[string]func(i cache.Indexer) error{
	"nothing": func(cache.Indexer) error { return nil },
	"add":     func(i cache.Indexer) error { return i.Add(at(5, "x")) },
	"update":  func(i cache.Indexer) error { return errors.Join(i.Add(at(5, "x")), i.Update(at(9, "y"))) },
	"without a version": func(i cache.Indexer) error {
		o := at(5, "x")
		o.ResourceVersion = ""
		return errors.Join(i.Add(at(3, "y")), i.Update(o))
	},
	"delete": func(i cache.Indexer) error { return errors.Join(i.Add(at(5, "x")), i.Delete(at(7, "x"))) },
	"delete of a key": func(i cache.Indexer) error {
		return errors.Join(i.Add(at(5, "x")), i.Delete(cache.ExplicitKey("a/o")))
	},
	"delete by metadata": func(i cache.Indexer) error {
		return errors.Join(i.Add(at(5, "x")),
			i.Delete(&metav1.PartialObjectMetadata{ObjectMeta: at(7, "x").ObjectMeta}))
	},
	"delete by the metadata alone": func(i cache.Indexer) error {
		m := at(7, "x").ObjectMeta
		return errors.Join(i.Add(at(5, "x")), i.Delete(&m))
	},
	"delete by another type": func(i cache.Indexer) error {
		return errors.Join(i.Add(at(5, "x")), i.Delete(&corev1.Secret{ObjectMeta: at(7, "x").ObjectMeta}))
	},
	"transaction that deletes a key": func(i cache.Indexer) error {
		return errors.Join(i.Add(at(5, "x")), asError(i.(cache.TransactionStore).Transaction(
			cache.Transaction{Type: cache.TransactionTypeDelete, Object: cache.ExplicitKey("a/o")})))
	},
	"delete of nothing": func(i cache.Indexer) error { return i.Delete(at(7, "x")) },
	"tombstone": func(i cache.Indexer) error {
		return errors.Join(i.Add(at(5, "x")), i.Delete(cache.DeletedFinalStateUnknown{Key: "a/o", Obj: at(6, "x")}))
	},
	"replace": func(i cache.Indexer) error {
		return errors.Join(i.Add(at(5, "x")), i.Replace([]any{at(9, "y")}, "20"))
	},
	"replace by none":    func(i cache.Indexer) error { return errors.Join(i.Add(at(5, "x")), i.Replace(nil, "")) },
	"bookmark":           func(i cache.Indexer) error { i.Bookmark("30"); return nil },
	"bookmark of none":   func(i cache.Indexer) error { i.Bookmark("30"); i.Bookmark(""); return nil },
	"add after bookmark": func(i cache.Indexer) error { i.Bookmark("30"); return i.Add(at(5, "x")) },
	"transaction": func(i cache.Indexer) error {
		return errors.Join(i.Add(at(5, "x")), asError(i.(cache.TransactionStore).Transaction(
			cache.Transaction{Type: cache.TransactionTypeDelete, Object: at(8, "x")},
			cache.Transaction{Type: cache.TransactionTypeAdd,
				Object: configMap("z", "t", 7, map[string]string{"words": "x"})})))
	},
	"transaction of an unknown type": func(i cache.Indexer) error {
		return errors.Join(i.Add(at(5, "x")), asError(i.(cache.TransactionStore).Transaction(
			cache.Transaction{Object: at(8, "y")},
			cache.Transaction{Type: "Patch", Object: at(9, "z")})))
	},
}

func asError(err *cache.TransactionError) error {
	if err == nil {
		return nil
	}
	return err
}

// TestAnswersOfClientGo: each call answers as client-go's, after each program of
// writes, in a store that its program fills and in one that has been listed.
func TestAnswersOfClientGo(t *testing.T) {
	if !clientfeatures.FeatureGates().Enabled(clientfeatures.AtomicFIFO) {
		t.Fatal("client-go's store does not state its version")
	}
	for name, write := range storeWrites {
		for n := range 4 {
			listed, memory := n%2 == 1, []int64{-1, 1 << 20}[n/2]
			t.Run(fmt.Sprint(name, " listed ", listed, " memory ", memory), func(t *testing.T) {
				db := openTest(t, testPath(t), Options{Durability: DurabilityProcess, ObjectMemory: memory})
				s := claimTest(t, db, Claim{Indexers: indexers})
				if listed {
					relist(t, s, "2", RelistOptions{}, nil, 1)
				}
				model := cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, cloneIndexers())
				if listed {
					model.Bookmark("2")
				}
				both(t, model, s, write)
				if memory > 0 {
					loadedInMemory(t, s)
				}
				for what, call := range storeCalls {
					if a, b := call(model), call(s); !reflect.DeepEqual(a, b) {
						t.Errorf("%s: client-go %#v, ours %#v", what, a, b)
					}
				}
				if st := s.State(); listed && (st.ResourceVersion != "" || st.Synced) {
					t.Errorf("the program has written to an informer's source, whose state is %+v", st)
				}
			})
		}
	}
}

func cloneIndexers() cache.Indexers {
	c := cache.Indexers{}
	for name, fn := range indexers {
		c[name] = fn
	}
	return c
}

// TestWritesAfterRelease: writes to a released store fail at once; the file stays open,
// and another claim's writes go on.
func TestWritesAfterRelease(t *testing.T) {
	db := openTest(t, testPath(t), Options{Durability: DurabilityProcess})
	for _, again := range []bool{false, true} {
		s := claimTest(t, db, Claim{Indexers: indexers})
		if err := s.Add(at(5, "x")); err != nil {
			t.Fatal(err)
		}
		s.Release()
		if again {
			claimTest(t, db, Claim{})
		}
		for name, write := range map[string]func() error{
			"Add":     func() error { return s.Add(at(6, "y")) },
			"Update":  func() error { return s.Update(at(6, "y")) },
			"Delete":  func() error { return s.Delete(at(6, "y")) },
			"Replace": func() error { return s.Replace([]any{at(6, "y")}, "6") },
			"Transaction": func() error {
				return asError(s.Transaction(cache.Transaction{Type: cache.TransactionTypeAdd, Object: at(6, "y")}))
			},
			"Bookmark":    func() error { s.Bookmark("6"); return ErrClosed },
			"AddIndexers": func() error { return s.AddIndexers(cache.Indexers{"more": indexers["long"]}) },
		} {
			done := make(chan error)
			go func() { done <- write() }()
			select {
			case err := <-done:
				if err == nil || name != "Transaction" && !errors.Is(err, ErrClosed) ||
					!strings.Contains(fmt.Sprint(err), "closed") {
					t.Errorf("%s after the end: %v", name, err)
				}
			case <-time.After(time.Minute):
				t.Fatal(name, " hangs")
			}
		}
		if obj, ok, err := s.GetByKey("a/o"); err != nil || !ok || obj.(*corev1.ConfigMap).ResourceVersion != "5" {
			t.Fatal(obj, ok, err)
		}
	}
}

// TestSameVersion: an object that has changed under the same version, or without one,
// is stored and told. An unchanged one is not.
func TestSameVersion(t *testing.T) {
	for _, o := range []Options{{Durability: DurabilityProcess},
		{Durability: DurabilityProcess, Compression: CompressionZstd}} {
		for _, version := range []string{"5", "", "opaque"} {
			t.Run(fmt.Sprint(o.Compression, " ", version), func(t *testing.T) {
				f := newFedTest(t, o)
				f.list(1)
				f.from = f.s.State().Seq + 1
				obj := func(content string) *corev1.ConfigMap {
					c := at(5, content)
					c.ResourceVersion = version
					return c
				}
				f.event(cache.Added, obj("x"))
				f.event(cache.Updated, obj("x"))
				f.event(cache.Updated, obj("y"))
				f.event(cache.Updated, obj("y"))
				want := strings.NewReplacer("V", version).Replace("Added Vx, Updated Vx>Vy")
				if got := f.told(); got != want || f.read() != version+"y" {
					t.Fatalf("told %q, want %q; read %s", got, want, f.read())
				}
			})
		}
	}
}
