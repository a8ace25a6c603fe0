package boltstore

import (
	"errors"
	"fmt"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestDeletesAreRetried: a large relist whose deletes cannot be written goes on with them when
// Commit is called again.
func TestDeletesAreRetried(t *testing.T) {
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
	r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
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
	_, err = r.Commit("502", time.Now())
	must(t, err)
	sameObjects(t, "after", srv.anys(), s.List())
}
