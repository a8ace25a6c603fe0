package boltstore

import (
	"fmt"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestListFillsPages: a first list leaves pages nearly full. With half-full pages, a file
// of small objects would take two thirds more.
func TestListFillsPages(t *testing.T) {
	srv := server{}
	for i := range 4000 {
		srv.set(configMap("ns", fmt.Sprintf("some-deployment-%05d-abcde", i), i+1,
			map[string]string{"k": fmt.Sprint(i)}))
	}
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	relist(t, s, "10000", RelistOptions{}, srv.list(), 500)
	var st bolt.BucketStats
	if err := db.h.view(func(tx *bolt.Tx) error {
		src, ok := db.h.source(tx, s.id)
		if !ok {
			return ErrNoSource
		}
		st = src.contents().Items.Bucket.Stats()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if full := float64(st.LeafInuse) / float64(st.LeafAlloc); full < 0.8 {
		t.Errorf("leaf pages are full to %.2f: %+v", full, st)
	}
}
