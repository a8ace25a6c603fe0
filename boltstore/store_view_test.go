package boltstore

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// TestViewDoesNotWrite: on a file open for reading or for writing, a view
// serves reads and refuses writes.
func TestViewDoesNotWrite(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	if err := claimTest(t, db, Claim{}).Add(configMap("a", "b", 1, nil)); err != nil {
		t.Fatal(err)
	}
	for _, readOnly := range []bool{false, true} {
		if readOnly {
			closeTest(t, db)
			db = openTest(t, path, Options{ReadOnly: true})
			if _, err := db.Claim(Claim{Source: configMaps, Example: &corev1.ConfigMap{}}); err == nil ||
				!strings.Contains(err.Error(), "DB.View") {
				t.Errorf("a claim of a file that was opened read-only: %v", err)
			}
		}
		s, err := db.View(configMaps)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.ListKeys()) != 1 {
			t.Fatal(s.ListKeys())
		}
	}
}

// TestViewWithoutNamespaceIndex: a view finds the objects of a namespace whether or not
// the file has an index of namespaces.
func TestViewWithoutNamespaceIndex(t *testing.T) {
	for _, indexers := range []cache.Indexers{nil, {cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}} {
		db := openTest(t, testPath(t), Options{Durability: DurabilityProcess})
		s := claimTest(t, db, Claim{Indexers: indexers})
		for _, ns := range []string{"a", "b"} {
			if err := s.Add(configMap(ns, "o", 5, nil)); err != nil {
				t.Fatal(err)
			}
		}
		v, err := db.View(configMaps)
		if err != nil {
			t.Fatal(err)
		}
		objs, err := v.ByIndex(cache.NamespaceIndex, "b")
		if err != nil || len(objs) != 1 || keyOfObject(objs[0]) != "b/o" {
			t.Errorf("%d indexers: %v %v", len(indexers), objs, err)
		}
		if keys, err := v.IndexKeys(cache.NamespaceIndex, "b"); err != nil || len(keys) != 1 {
			t.Errorf("%d indexers: %v %v", len(indexers), keys, err)
		}
		if values := v.ListIndexFuncValues(cache.NamespaceIndex); len(values) != 2 {
			t.Errorf("%d indexers: %v", len(indexers), values)
		}
	}
}

// TestViewState: the state of a view is that of the newest commit, as the objects are.
func TestViewState(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	v, err := db.View(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	relist(t, s, "7", RelistOptions{}, []runtime.Object{configMap("a", "b", 5, nil)}, 10)
	if st := v.State(); len(v.List()) != 1 || !st.Synced || st.ResourceVersion != "7" || st.Objects != 1 ||
		st.ConfirmedAge == nil {
		t.Errorf("%+v", st)
	}
	if rv := v.LastStoreSyncResourceVersion(); rv != "7" {
		t.Errorf("its version is %q", rv)
	}
	s.Release()
	closeTest(t, db)
	if st := v.State(); st.Source != configMaps {
		t.Errorf("closed: %+v", st)
	}
}
