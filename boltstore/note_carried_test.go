package boltstore

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// wantsSound wants a file whose only problems are those that the file itself states.
func wantsSound(t *testing.T, what string, db *DB) {
	t.Helper()
	r, err := db.Check()
	if err != nil || len(r.Problems) > 0 {
		t.Fatalf("%s: %+v %v", what, r, err)
	}
	for _, src := range r.Sources {
		for _, p := range src.Problems {
			if !strings.HasPrefix(p, "marked degraded") {
				t.Errorf("%s: %s", what, p)
			}
		}
	}
}

// flipNoted flips a bit of each value in b that is selects.
func flipNoted(t *testing.T, b *bolt.Bucket, is func(k, v []byte) bool) {
	t.Helper()
	var keys [][]byte
	if err := b.ForEach(func(k, v []byte) error {
		if is(k, v) {
			keys = append(keys, bytes.Clone(k))
		}
		return nil
	}); err != nil || len(keys) == 0 {
		t.Fatal("nothing to flip: ", err)
	}
	for _, k := range keys {
		v := bytes.Clone(b.Get(k))
		v[len(v)-1] ^= 1
		if err := b.Put(k, v); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNamelessOfAnInterruptedList: the relist that continues an interrupted first list
// knows of an object without a key. Its reason does not contain the object's content.
func TestNamelessOfAnInterruptedList(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	c := Claim{KeyFunc: func(o any) (string, error) {
		k, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
		if k == "ns/cm1" {
			return "", errRefused
		}
		return k, err
	}}
	s := claimTest(t, db, c)
	var objs []runtime.Object
	for i := range 9 {
		objs = append(objs, configMap("ns", fmt.Sprint("cm", i), i+1, map[string]string{"secret": "zq-content"}))
	}
	l := newFirstList(t, objs, 3)
	l.o.OnError = func(runtime.Object, error) {}
	r, from := l.begin(s)
	if err := l.read(r, from, 2); err != nil {
		t.Fatal(err)
	}
	if from := l.attempt(s, 1000); from != 2 {
		t.Fatal(from)
	}
	st := s.State()
	if s.Feed.UnstoredObjects() != 1 || !strings.Contains(st.UnstoredReason, "zq-refused") ||
		strings.Contains(st.UnstoredReason, "zq-content") {
		t.Errorf("%+v", st)
	}
	srv := newFirstList(t, objs, 3)
	srv.o.OnError = l.o.OnError
	srv.attempt(s, 1000)
	if s.Feed.UnstoredObjects() != 1 {
		t.Errorf("%+v", s.State())
	}
}

// TestSalvageOfNotedRecords: a record that cannot be saved leaves no note of its
// indices and no empty base.
func TestSalvageOfNotedRecords(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	bad := []string{"a"}
	s := claimTest(t, db, failing(&bad))
	relistSome(t, s, "5", RelistOptions{}, []runtime.Object{configMap("ns", "a", 1, nil), configMap("ns", "b", 2, nil)})
	if err := s.Add(configMap("ns", "c", 9, nil)); err != nil {
		t.Fatal(err)
	}
	err := db.h.update(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, s.id)
		flipNoted(t, src.contents().Items.Bucket, func(k, v []byte) bool {
			key, _, err := s.coder.owner.ParseRecord(k, v)
			return err == nil && (key == "ns/a" || key == "ns/c")
		})
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	killed(t, db)
	must(t, salvageAt(path, db.opts))
	db = openTest(t, path, Options{})
	s = claimTest(t, db, failing(&bad))
	if s.Err() == nil {
		t.Error("not damaged?")
	}
	wantsSound(t, "salvaged", db)
	expectNoted(t, "salvaged", s)
	relistSome(t, s, "12", RelistOptions{},
		[]runtime.Object{configMap("ns", "a", 1, nil), configMap("ns", "b", 2, nil)})
	wantsSound(t, "relisted", db)
	if s.Err() != nil {
		t.Error(s.Err())
	}
	expectNoted(t, "relisted", s, "ns/a odd")
}
