package live

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestAnyText: values of an index, and keys, may be any bytes of any length. Both readers
// return them as they are, in order.
func TestAnyText(t *testing.T) {
	db, err := boltstore.Open(testPath(t), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	src := boltstore.Source{Group: "example.com", Version: "v1", Resource: "texts", Form: boltstore.FormTyped}
	values := []string{"\xff", "\xfe", "a\x00b", "é", "plain", strings.Repeat("\xf0", 40_000)}
	s, err := db.Claim(boltstore.Claim{Source: src, Example: &corev1.ConfigMap{},
		Indexers: cache.Indexers{"data": func(obj any) ([]string, error) {
			return []string{string(obj.(*corev1.ConfigMap).BinaryData["value"])}, nil
		}}, IndexVersions: map[string]string{"data": "1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Release()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	keys := map[string][]string{} // by value
	var inB []string
	var objs []runtime.Object
	for i, value := range values {
		name := fmt.Sprint(strings.Repeat("n", 300*i), i)
		if i == 1 {
			name = "\xff"
		}
		for _, ns := range []string{"a", "b"} {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
				Data: map[string]string{"n": fmt.Sprint(i)}, BinaryData: map[string][]byte{"value": []byte(value)}}
			objs = append(objs, o)
			keys[value] = append(keys[value], ns+"/"+name)
		}
		inB = append(inB, fmt.Sprint("b", i))
	}
	list, err := s.BeginRelist(boltstore.RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
	if err == nil {
		err = list.Page(objs)
	}
	if err == nil {
		_, err = list.Commit("1", time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range both(t, db) {
		got := map[string][]string{}
		add := func(v IndexValue) error { got[v.Value] = v.Keys; return nil }
		if err := r.Index(t.Context(), Query{Source: src, Index: "data"}, add); err != nil {
			t.Fatal(name, err)
		}
		for value, want := range keys {
			if !slices.Equal(got[value], want) {
				t.Errorf("%s: %.20q has %.60q, not %.60q", name, value, got[value], want)
			}
			found := 0
			count := func(*unstructured.Unstructured) error { found++; return nil }
			if err := r.Objects(t.Context(), Query{Source: src, Index: "data", Value: value}, count); err != nil || found != 2 {
				t.Errorf("%s: %d objects with %.20q, %v", name, found, value, err)
			}
			if err := r.Objects(t.Context(), Query{Source: src, Key: want[0]}, count); err != nil || found != 3 {
				t.Errorf("%s: not at %.60q: %v", name, want[0], err)
			}
		}
		var read []string
		err := r.Objects(t.Context(), Query{Source: src, Namespace: "b"}, func(u *unstructured.Unstructured) error {
			n, _, err := unstructured.NestedString(u.Object, "data", "n")
			read = append(read, u.GetNamespace()+n)
			return err
		})
		if slices.Sort(read); err != nil || !slices.Equal(read, inB) {
			t.Errorf("%s: in b are %q, not %q, %v", name, read, inB, err)
		}
	}
}
