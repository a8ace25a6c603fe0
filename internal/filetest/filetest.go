// Package filetest fills files for tests.
package filetest

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// Open opens a new file, which is closed when the test ends.
func Open(t testing.TB, o boltstore.Options) *boltstore.DB {
	t.Helper()
	return OpenAt(t, filepath.Join(t.TempDir(), "test.db"), o)
}

// OpenAt opens the file at path, which is closed when the test ends.
func OpenAt(t testing.TB, path string, o boltstore.Options) *boltstore.DB {
	t.Helper()
	db, err := boltstore.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// InSource changes the buckets of the first source in the file at path, which no program
// has open.
func InSource(t testing.TB, path string, fn func(src *bolt.Bucket) error) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		sources := tx.Bucket([]byte("sources"))
		id, _ := sources.Cursor().First()
		return fn(sources.Bucket(id))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// Source is all objects of a resource of the core group, version v1.
func Source(resource string) boltstore.Source {
	return boltstore.Source{Version: "v1", Resource: resource, Form: boltstore.FormTyped}
}

// Claim claims a source, which is released when the test ends.
func Claim(t testing.TB, db *boltstore.DB, src boltstore.Source, example runtime.Object) *boltstore.Claimed {
	t.Helper()
	s, err := db.Claim(boltstore.Claim{Source: src, Example: example})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Release)
	return s
}

// Relist lists the objects as the server's, at a version, now.
func Relist(t testing.TB, s *boltstore.Claimed, version string, objs ...runtime.Object) {
	t.Helper()
	RelistAt(t, s, version, time.Now(), objs...)
}

// RelistAt is Relist at the given time.
func RelistAt(t testing.TB, s *boltstore.Claimed, version string, at time.Time, objs ...runtime.Object) {
	t.Helper()
	r, err := s.Upstream.BeginRelist(boltstore.RelistOptions{
		OnError: func(_ runtime.Object, err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Page(objs); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit(version, at); err != nil {
		t.Fatal(err)
	}
}

// SameIndices compares each index of a store with one recomputed from its objects.
func SameIndices(t testing.TB, fns cache.Indexers, s *boltstore.Store, objects []any) {
	t.Helper()
	model := cache.NewIndexer(cache.MetaNamespaceKeyFunc, fns)
	if err := model.Replace(objects, ""); err != nil {
		t.Fatal(err)
	}
	for name := range fns {
		want, got := model.ListIndexFuncValues(name), s.ListIndexFuncValues(name)
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Fatalf("index %s has the values %q, not %q", name, got, want)
		}
		for _, v := range want {
			wantKeys, _ := model.IndexKeys(name, v) // of an index that it has
			gotKeys, err := s.IndexKeys(name, v)
			slices.Sort(wantKeys)
			slices.Sort(gotKeys)
			if err != nil || !slices.Equal(wantKeys, gotKeys) {
				t.Fatalf("index %s: %q has %d keys, not %d: %v", name, v, len(gotKeys), len(wantKeys), err)
			}
		}
	}
}
