package main

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
	"github.com/kubewake/kubewake/internal/filetest"
)

// TestAnyText: values of an index, and keys, may be any bytes of any length. Both readers
// return them as they are, in order.
func TestAnyText(t *testing.T) {
	db, err := boltstore.Open(shortPath(t), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	src := filetest.Source("configmaps")
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
	list, err := s.Upstream.BeginRelist(boltstore.RelistOptions{
		OnError: func(_ runtime.Object, err error) { t.Error(err) }})
	if err == nil {
		err = list.Page(objs)
	}
	if err == nil {
		_, err = list.Commit("1", time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range readers(t, db) {
		got := map[string][]string{}
		add := func(v indexValue) error { got[v.Value] = v.Keys; return nil }
		if err := r.index(t.Context(), query{source: stateOf(t, db, src)}, "data", "", add); err != nil {
			t.Fatal(name, err)
		}
		for value, want := range keys {
			if !slices.Equal(got[value], want) {
				t.Errorf("%s: %.20q has %.60q, not %.60q", name, value, got[value], want)
			}
		}
		var read []string
		q := query{source: stateOf(t, db, src), namespace: "b"}
		err := r.objects(t.Context(), q, func(u *unstructured.Unstructured) error {
			n, _, err := unstructured.NestedString(u.Object, "data", "n")
			read = append(read, u.GetNamespace()+n)
			return err
		})
		if slices.Sort(read); err != nil || !slices.Equal(read, inB) {
			t.Errorf("%s: in b are %q, not %q, %v", name, read, inB, err)
		}
	}
}

// filled is a file whose source has these objects, until the test ends.
func filled(t *testing.T, src boltstore.Source, example runtime.Object, objs ...runtime.Object) *boltstore.DB {
	t.Helper()
	db, err := boltstore.Open(shortPath(t), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	filetest.Relist(t, filetest.Claim(t, db, src, example), "2", objs...)
	return db
}

// TestMetadataOfSecrets: the annotation that repeats the data is redacted even in
// Secrets that are kept as metadata.
func TestMetadataOfSecrets(t *testing.T) {
	src := boltstore.Source{Version: "v1", Resource: "secrets", Form: boltstore.FormMetadata}
	kept := &metav1.PartialObjectMetadata{ObjectMeta: secretOf(1, 10).ObjectMeta}
	db := filled(t, src, &metav1.PartialObjectMetadata{}, kept)
	for _, show := range []bool{false, true} {
		n := 0
		q := query{source: stateOf(t, db, src), secrets: show}
		err := (&reader{db: db}).objects(t.Context(), q, func(u *unstructured.Unstructured) error {
			n++
			if got := u.GetAnnotations()[corev1.LastAppliedConfigAnnotation]; (got == "hunter2") != show {
				t.Errorf("shown %q", got)
			}
			return nil
		})
		if err != nil || n != 1 {
			t.Error(n, err)
		}
	}
}

// TestKindOfEachObject: a custom resource may be defined again with another kind. Each
// object keeps its own, and is redacted by that.
func TestKindOfEachObject(t *testing.T) {
	src := boltstore.Source{Group: "example.com", Version: "v1", Resource: "things", Form: boltstore.FormUnstructured}
	var page []runtime.Object
	for _, kind := range []string{"Secret", "Thing"} {
		page = append(page, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1",
			"kind":     kind,
			"metadata": map[string]any{"namespace": "web", "name": strings.ToLower(kind), "resourceVersion": "1"},
			"data":     map[string]any{"password": "hunter2"}}})
	}
	db := filled(t, src, &unstructured.Unstructured{}, page...)
	shown := map[string]any{}
	q := query{source: stateOf(t, db, src)}
	if err := (&reader{db: db}).objects(t.Context(), q, func(u *unstructured.Unstructured) error {
		password, _, err := unstructured.NestedString(u.Object, "data", "password")
		shown[u.GetKind()] = password
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(shown) != 2 || shown["Secret"] != redacted || shown["Thing"] != "hunter2" {
		t.Error(shown)
	}
}
