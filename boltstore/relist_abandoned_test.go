package boltstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestAbandonedRelist: a relist that could not be staged at its end returns ErrAbandoned,
// not the disk's error for ever.
func TestAbandonedRelist(t *testing.T) {
	db := openTest(t, testPath(t), Options{maxCommitBytes: 1500})
	s := claimTest(t, db, Claim{Indexers: indexers})
	srv := server{}
	for i := range 200 {
		srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1, nil))
	}
	relist(t, s, "500", RelistOptions{}, srv.list(), 50)
	for i := range 199 {
		delete(srv, fmt.Sprintf("ns/cm%03d", i))
	}
	r, err := s.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Page(srv.list()); err != nil {
		t.Fatal(err)
	}
	full := errors.New("disk")
	db.h.setHook(func(*bolt.Tx) error { return full })
	if _, err := r.Commit("502", time.Now()); !errors.Is(err, full) {
		t.Fatal(err)
	}
	db.h.setHook(nil)
	if _, err := r.Commit("502", time.Now()); !errors.Is(err, ErrAbandoned) {
		t.Fatal(err)
	}
	r.Abort()
	relist(t, s, "502", RelistOptions{}, srv.list(), 50)
	sameObjects(t, "after", srv.anys(), s.List())
}
