package boltstore

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// TestOddObjects: an object that cannot be stored is an error, whatever the key function
// returns for it. Nothing panics, and the stored objects stay.
func TestOddObjects(t *testing.T) {
	var none *corev1.ConfigMap
	for name, obj := range map[string]any{
		"nil": nil, "nil pointer": none, "text": "text", "key": cache.ExplicitKey("a/o"),
		"another type": &corev1.Secret{}, "metadata": &metav1.PartialObjectMetadata{},
		"tombstone":            cache.DeletedFinalStateUnknown{Key: "a/o", Obj: at(2, "y")},
		"tombstone of nothing": cache.DeletedFinalStateUnknown{Key: "a/o"},
		"tombstone of nil":     cache.DeletedFinalStateUnknown{Key: "a/o", Obj: none},
	} {
		for _, listed := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " listed ", listed), func(t *testing.T) {
				db := openTest(t, testPath(t), Options{Durability: DurabilityProcess})
				s := claimTest(t, db, Claim{Indexers: indexers, KeyFunc: func(any) (string, error) {
					return "a/o", nil
				}})
				if listed {
					relist(t, s, "2", RelistOptions{}, nil, 1)
				}
				must(t, s.Add(at(1, "x")))
				writes := map[string]error{
					"Add": s.Add(obj), "Update": s.Update(obj), "Replace": s.Replace([]any{obj}, "5"),
					"ReplaceByKey": s.Filled.ReplaceByKey(map[string]any{"a/o": obj}, "5"),
					"Transaction": asError(s.Transaction(cache.Transaction{Type: cache.TransactionTypeAdd,
						Object: obj})),
					"TransactionByKey": s.Filled.TransactionByKey(cache.ThreadSafeStoreTransaction{Key: "a/o",
						Transaction: cache.Transaction{Type: cache.TransactionTypeUpdate, Object: obj}}),
				}
				for what, err := range writes {
					if err == nil {
						t.Errorf("%s: no error", what)
					}
				}
				if keys, rv := s.ListKeys(), s.LastStoreSyncResourceVersion(); len(keys) != 1 || rv != "1" {
					t.Errorf("%v at %s", keys, rv)
				}
				must(t, s.Delete(obj))
				if keys := s.ListKeys(); len(keys) != 0 {
					t.Errorf("after Delete: %v", keys)
				}
				if err := s.Err(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// plainValue is a runtime.Object that is not a pointer.
type plainValue struct{ Name string }

func (plainValue) GetObjectKind() schema.ObjectKind        { return nil }
func (v plainValue) DeepCopyObject() runtime.Object        { return v }
func (plainValue) ID() byte                                { return 200 }
func (plainValue) Decode(b []byte) (runtime.Object, error) { return plainValue{string(b)}, nil }
func (plainValue) Append(b []byte, obj runtime.Object) ([]byte, error) {
	return append(b, obj.(plainValue).Name...), nil
}

// valueCodec is the codec of plainValue.
type valueCodec struct{ plainValue }

func (valueCodec) Name() string { return "value" }

// TestObjectsWithoutPointers: objects that are not pointers, and do not state their kind,
// can be stored with a codec of their own. They are read from the file.
func TestObjectsWithoutPointers(t *testing.T) {
	key := func(o any) (string, error) { return o.(plainValue).Name, nil }
	for _, form := range []Form{FormTyped, FormUnstructured} {
		src := Source{Version: "v1", Resource: "values", Form: form}
		db := openTest(t, testPath(t), Options{ObjectMemory: 1 << 20})
		if _, err := db.Claim(Claim{Source: src, Example: plainValue{}, KeyFunc: key}); err == nil {
			t.Error("there is no codec for it")
		}
		s := claimTest(t, db, Claim{Source: src, Example: plainValue{}, KeyFunc: key, Codec: valueCodec{}})
		must(t, s.Add(plainValue{"a"}))
		must(t, s.Add(plainValue{"b"}))
		if obj, ok, err := s.GetByKey("b"); !ok || err != nil || obj != (plainValue{"b"}) {
			t.Error(obj, ok, err)
		}
		if st := s.State(); st.InMemory || st.Objects != 2 {
			t.Errorf("%+v", st)
		}
	}
}

// noContent is an object without any content: it has only its key.
type noContent struct{}

func (*noContent) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }
func (*noContent) DeepCopyObject() runtime.Object   { return &noContent{} }

// TestObjectsWithoutContent: pointers to empty structs are all equal. Each object is at
// its key.
func TestObjectsWithoutContent(t *testing.T) {
	db := openTest(t, testPath(t), Options{Durability: DurabilityProcess, ObjectMemory: 1 << 20})
	s := claimTest(t, db, Claim{Source: Source{Version: "v1", Resource: "sets", Form: FormTyped},
		Example: &noContent{}})
	all := map[string]any{"a": &noContent{}, "b": &noContent{}, "c": &noContent{}}
	must(t, s.Filled.ReplaceByKey(all, ""))
	waitMemory(s)
	must(t, s.Filled.TransactionByKey(cache.ThreadSafeStoreTransaction{Key: "a",
		Transaction: cache.Transaction{Type: cache.TransactionTypeDelete}}))
	waitMemory(s)
	if keys, objs := s.ListKeys(), s.List(); len(keys) != 2 || len(objs) != 2 || s.memory.disagreed.Load() > 0 {
		t.Error(keys, objs, s.memory.disagreed.Load())
	}
}
