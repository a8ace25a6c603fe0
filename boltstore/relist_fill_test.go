package boltstore

import (
	"fmt"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestListFillsPages: a first list leaves pages nearly full. With half-full pages, a file
// of small objects would take two thirds more. The names in an encrypted file are not in
// order: its full pages would split in time, so half of each is left free.
func TestListFillsPages(t *testing.T) {
	srv := server{}
	for i := range 4000 {
		srv.set(configMap("ns", fmt.Sprintf("some-deployment-%05d-abcde", i), i+1, map[string]string{"k": fmt.Sprint(i)}))
	}
	for what, o := range map[string]Options{"plain": {}, "encrypted": {Keyset: sealtest.Keyset()}} {
		t.Run(what, func(t *testing.T) {
			db := openTest(t, testPath(t), o)
			s := claimTest(t, db, Claim{})
			relist(t, s, "10000", RelistOptions{}, srv.list(), 500)
			var st bolt.BucketStats
			if err := db.h.view(func(tx *bolt.Tx) error {
				src, ok := db.h.source(tx, s.id)
				if !ok {
					return ErrNoSource
				}
				st = src.gen(s.metaNow().Generation).Items.Bucket.Stats()
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			least, most := 0.8, 1.0
			if db.Encrypted() {
				least, most = 0.5, 0.8
			}
			if full := float64(st.LeafInuse) / float64(st.LeafAlloc); full < least || full > most {
				t.Errorf("leaf pages are full to %.2f: %+v", full, st)
			}
		})
	}
}
