package boltstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	berrors "go.etcd.io/bbolt/errors"
	corev1 "k8s.io/api/core/v1"
)

// TestMaxSize: at its bound the file takes nothing more and loses nothing, the
// resume point stays and reads go on; commits do once the bound is raised. (A
// delete needs pages before it gives some back: it may not fit either.)
func TestMaxSize(t *testing.T) {
	path := testPath(t)
	o := Options{Window: time.Nanosecond, MaxSize: 4 << 20}
	db, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Attach(p)
	large := func(i int) *corev1.ConfigMap {
		return configMap("a", fmt.Sprint("o", i), i+1, map[string]string{"k": strings.Repeat("x", 100<<10)})
	}
	fill := func(from int) (n int) {
		t.Helper()
		for n < 100 {
			if err := s.Add(large(from + n)); err != nil {
				if !errors.Is(err, berrors.ErrMaxSizeReached) {
					t.Fatal(err)
				}
				return n
			}
			n++
		}
		t.Fatal("there is no bound")
		return 0
	}
	n := fill(0)
	p.add(t, s, large(n))
	for deadline := time.Now().Add(10 * time.Second); !errors.Is(db.Err(), berrors.ErrMaxSizeReached); {
		if time.Now().After(deadline) {
			t.Fatal(db.Err())
		}
	}
	same := func() {
		t.Helper()
		if got, err := s.ListErr(); err != nil || len(got) != n || s.LastStoreSyncResourceVersion() == fmt.Sprint(n+1) || db.Size() > int64(o.MaxSize) {
			t.Fatalf("%d of %d objects at %s, %d bytes, %v", len(got), n, s.LastStoreSyncResourceVersion(), db.Size(), err)
		}
		if r, err := db.Check(); err != nil || !r.Sound() {
			t.Fatalf("%+v %v", r, err)
		}
	}
	same()
	s.Release()
	if err := db.Close(); !errors.Is(err, berrors.ErrMaxSizeReached) {
		t.Fatalf("closed with changes that could not be committed: %v", err)
	}

	o.MaxSize *= 2
	if db, err = Open(path, o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeTest(t, db) })
	s = claimTest(t, db, Claim{})
	if len(db.SetAside()) > 0 {
		t.Fatal(db.SetAside())
	}
	same()
	p = &testProducer{}
	s.Attach(p)
	p.add(t, s, large(n)) // fetched again
	p.wait(t)
	if got := s.List(); len(got) != n+1 || s.LastStoreSyncResourceVersion() != fmt.Sprint(n+1) {
		t.Fatalf("%d objects, not %d, at %s", len(got), n+1, s.LastStoreSyncResourceVersion())
	}
}
