package live

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/history"
	"github.com/kubewake/kubewake/internal/filetest"
)

// both returns the readers of an open, served file.
func both(t *testing.T, db *boltstore.DB) map[string]Reader {
	t.Helper()
	start(t, db, defaultLimits)
	return map[string]Reader{"file": File(db), "socket": dial(t, db.Path())}
}

// TestIndex: each value of an index comes with its keys. Indices of secrets, except the
// namespace, are shown only on request.
func TestIndex(t *testing.T) {
	db, s := world(t, testPath(t), 7, 10)
	err := s.AddIndexers(cache.Indexers{"password": func(obj any) ([]string, error) {
		return []string{string(obj.(*corev1.Secret).Data["password"])}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	complete := func() bool {
		v, err := db.View(secrets)
		return err == nil && v.GetIndexers()["password"] != nil
	}
	for !complete() && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond) // the index is built in the background, and nothing tells when it is
	}
	for name, r := range both(t, db) {
		read := func(q Query) (all []string, err error) {
			q.Source = secrets
			err = r.Index(t.Context(), q, func(v IndexValue) error {
				all = append(all, fmt.Sprint(v.Value, v.Keys))
				return nil
			})
			return all, err
		}
		got, err := read(Query{Index: cache.NamespaceIndex})
		if want := []string{"ns0[ns0/s00000 ns0/s00003 ns0/s00006]", "ns1[ns1/s00001 ns1/s00004]", "ns2[ns2/s00002 ns2/s00005]"}; err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if got, err := read(Query{Index: cache.NamespaceIndex, Value: "ns1"}); err != nil || !slices.Equal(got, []string{"ns1[ns1/s00001 ns1/s00004]"}) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if got, err := read(Query{Index: "password"}); !errors.Is(err, ErrSecret) || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if got, err := read(Query{Index: "password", Secrets: true}); err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if _, err := read(Query{Index: "none"}); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		stop := errors.New("enough")
		if err := r.Index(t.Context(), Query{Source: secrets, Index: cache.NamespaceIndex}, func(IndexValue) error { return stop }); !errors.Is(err, stop) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestObjectAsItWas: both readers show an earlier state of an object, redacted, or say
// that they do not know it.
func TestObjectAsItWas(t *testing.T) {
	db, s := world(t, testPath(t), 2, 10)
	relist(t, s, 2, 50, "200") // the same versions, with other content
	relist(t, s, 1, 50, "300")
	for name, r := range both(t, db) {
		read := func(key string, at history.Moment) (all []*unstructured.Unstructured, err error) {
			err = r.Objects(t.Context(), Query{Source: secrets, Key: key, At: at}, func(u *unstructured.Unstructured) error {
				all = append(all, u)
				return nil
			})
			return all, err
		}
		version := func(v string) history.Moment { return history.Moment{ResourceVersion: v} }
		got, err := read("ns0/s00000", version("150"))
		if err != nil || len(got) != 1 || got[0].GetResourceVersion() != "1" {
			t.Errorf("%s: %v, %v", name, got, err)
		} else if p, _, _ := unstructured.NestedString(got[0].Object, "data", "password"); p != redacted {
			t.Errorf("%s: shown %q", name, p)
		}
		for _, at := range []history.Moment{version("400"), version("x"), {Time: time.Unix(1, 0)}} {
			if got, err := read("ns0/s00000", at); !errors.Is(err, ErrUnknown) {
				t.Errorf("%s: at %s: %v, %v", name, at, got, err)
			}
		}
		if got, err := read("ns1/s00001", history.Moment{Time: time.Now()}); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if got, err := read("ns1/s00001", version("250")); err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestSorted: a query that asks for it gets objects in the order of their keys, even if some
// keys are so long that the file has their hashes.
func TestSorted(t *testing.T) {
	for name, digits := range map[string]int{"short": 5, "long": 600} {
		t.Run(name, func(t *testing.T) {
			db := filetest.Open(t, boltstore.Options{})
			s := filetest.Claim(t, db, filetest.Source("configmaps"), &corev1.ConfigMap{})
			var objs []runtime.Object
			for i := range 600 {
				objs = append(objs, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns", Name: fmt.Sprintf("%0*d", digits, i), ResourceVersion: "5"}})
			}
			filetest.Relist(t, s, "10", objs...)
			for reader, r := range both(t, db) {
				keys := func(q Query) (all []string) {
					q.Source = s.Source()
					err := r.Objects(t.Context(), q, func(u *unstructured.Unstructured) error {
						all = append(all, u.GetNamespace()+"/"+u.GetName())
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
					return all
				}
				sorted, asItIs := keys(Query{Sorted: true}), keys(Query{})
				if len(sorted) != 600 || !slices.IsSorted(sorted) {
					t.Errorf("%s: %d objects, sorted: %v", reader, len(sorted), slices.IsSorted(sorted))
				}
				if slices.IsSorted(asItIs) != (name == "short") {
					t.Errorf("%s: the file's order is that of the keys: %v", reader, slices.IsSorted(asItIs))
				}
			}
		})
	}
}

// TestNamespace: a query of a namespace gets its objects in the order of their keys, and
// reads no others.
func TestNamespace(t *testing.T) {
	db, _ := worldIn(t, testPath(t), boltstore.Options{}, 3000, 10)
	for reader, r := range both(t, db) {
		for ns, want := range map[string]int{
			"ns0": 1000, "ns1": 1000, "ns2": 1000, "ns": 0, "ns22": 0, "a": 0, "z": 0, "": 3000,
		} {
			var keys []string
			q := Query{Source: secrets, Namespace: ns, Sorted: true}
			err := r.Objects(t.Context(), q, func(u *unstructured.Unstructured) error {
				if ns != "" && u.GetNamespace() != ns {
					t.Errorf("%s: %q has an object of %q", reader, ns, u.GetNamespace())
				}
				keys = append(keys, u.GetNamespace()+"/"+u.GetName())
				return nil
			})
			if err != nil || len(keys) != want || !slices.IsSorted(keys) {
				t.Errorf("%s: %q: %d objects, want %d, sorted %v: %v",
					reader, ns, len(keys), want, slices.IsSorted(keys), err)
			}
		}
	}
}

// TestNamespaceOfOwnKeys: the keys of a program's own store may have nothing to do with
// namespaces. A query of one finds the objects in it, and those that are in none.
func TestNamespaceOfOwnKeys(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	claim := func(resource string) *boltstore.Claimed {
		s, err := db.Claim(boltstore.Claim{
			Source: filetest.Source(resource), Example: &corev1.ConfigMap{},
			KeyFunc: func(obj any) (string, error) { return "kept/" + obj.(*corev1.ConfigMap).Name, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Release)
		return s
	}
	own, listed := claim("owns"), claim("listeds")
	var objs []runtime.Object
	for name, ns := range map[string]string{"a": "web", "b": "shop", "c": ""} {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: ns, Name: name, UID: types.UID(name), ResourceVersion: "5"}}
		objs = append(objs, o)
		if err := own.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	filetest.Relist(t, listed, "10", objs...)
	for reader, r := range both(t, db) {
		for _, s := range []*boltstore.Claimed{own, listed} {
			for ns, want := range map[string]string{"web": "a c", "kept": "c", "": "a b c"} {
				var names []string
				q := Query{Source: s.Source(), Namespace: ns, Sorted: true}
				err := r.Objects(t.Context(), q, func(u *unstructured.Unstructured) error {
					names = append(names, u.GetName())
					return nil
				})
				if got := strings.Join(names, " "); err != nil || got != want {
					t.Errorf("%s: %s in %q: %q, want %q: %v", reader, s.Source(), ns, got, want, err)
				}
			}
		}
	}
}
