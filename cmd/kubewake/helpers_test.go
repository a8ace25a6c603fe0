package main

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
)

// fileWith writes a file with these config maps, as a mirror would.
func fileWith(t testing.TB, path string, objs []runtime.Object) {
	t.Helper()
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "configmaps",
		Form: boltstore.FormTyped}, Example: &corev1.ConfigMap{},
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}})
	if err != nil {
		t.Fatal(err)
	}
	listed(t, s, objs)
	if err := s.Describe(boltstore.Description{Scope: boltstore.ScopeNamespaced,
		Names: []string{"configmap", "cm"}}); err != nil {
		t.Fatal(err)
	}
	s.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// listed lists the objects into a store, as if the server had confirmed them now.
func listed(t testing.TB, s *boltstore.Claimed, objs []runtime.Object) {
	t.Helper()
	filetest.Relist(t, s, "500000", objs...)
}

type fullWriter struct{ writes int }

func (w *fullWriter) Write([]byte) (int, error) {
	w.writes++
	return 0, errors.New("full")
}
