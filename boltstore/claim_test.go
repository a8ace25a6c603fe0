package boltstore

import (
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// TestClaimHeals: a claim that meets damage first gets the salvaged objects.
func TestClaimHeals(t *testing.T) {
	path := testPath(t)
	srv := stored(t, path, 300, 150, Options{})
	db := openTest(t, path, Options{Window: time.Nanosecond})
	page := 0
	err := db.h.view(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, configMaps.ID())
		page = int(src.Journal().Bucket.Root())
		return nil
	})
	if err != nil || page == 0 {
		t.Fatal(page, err)
	}
	ruin(t, path, page)
	s := claimTest(t, db, Claim{Indexers: indexers})
	sameObjects(t, "after", srv.anys(), s.List())
	if len(db.AsidePaths()) != 1 {
		t.Errorf("set aside %q", db.AsidePaths())
	}
	if st := s.State(); !st.Synced || st.Degraded == "" || s.Err() == nil {
		t.Errorf("%+v, %v", st, s.Err())
	}
	p := &testProducer{}
	s.Attach(p)
	p.add(t, s, configMap("ns", "after", 9999, nil))
	p.wait(t)
	srv.set(configMap("ns", "after", 9999, nil))
	relist(t, s, "10000", RelistOptions{}, srv.list(), 100)
	if s.Err() != nil {
		t.Error(s.Err())
	}
}
