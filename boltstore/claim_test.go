package boltstore

import (
	"fmt"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
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
	if n := asides(t, db); len(db.AsidePaths()) != 1 || n != 0 {
		t.Errorf("set aside %q, %d sources", db.AsidePaths(), n)
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

// TestDictKey: a damaged key of a dictionary, which bbolt does not notice but refuses
// to copy. Objects packed with that dictionary are not served, and nothing else is
// lost, whether or not the file is replaced.
func TestDictKey(t *testing.T) {
	for _, replaced := range []bool{false, true} {
		t.Run(fmt.Sprint("replaced: ", replaced), func(t *testing.T) {
			path := testPath(t)
			o := Options{Compression: CompressionZstd, decrypt: true} // the place depends on the names
			db := openTest(t, path, o)
			s := claimTest(t, db, podClaim())
			pods := somePods(0, 150)
			relist(t, s, "1000", RelistOptions{}, pods, 150)
			versions := dictVersions(t, s)
			closeTest(t, db)
			f, done, err := pages.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			dicts := bucketAt(t, f, layout.BucketSources, []byte(podClaim().Source.ID()), layout.BucketDicts)
			rewritePage(t, path, f, dicts.Root, func(_ pages.Page, b []byte) {
				if b[pages.HeadSize+8] ^= 4; b[pages.HeadSize+8] != 0 {
					t.Fatal("not where the key's length is")
				}
			})
			if replaced {
				ruin(t, path, int(f.Freelist()))
			}
			db = openTest(t, path, o)
			if got := len(db.AsidePaths()) == 1; got != replaced {
				t.Fatal(db.AsidePaths())
			}
			s = claimTest(t, db, podClaim())
			if st := s.State(); st.Objects != 150 || !st.Synced || s.Err() == nil || len(s.ListKeys()) != 150 {
				t.Errorf("%+v, %v, %d keys", st, s.Err(), len(s.ListKeys()))
			}
			relist(t, s, "2000", RelistOptions{}, pods, 150)
			if list, err := s.ListErr(); len(list) != 150 || err != nil || s.Err() != nil {
				t.Errorf("%d objects, %v, %v", len(list), err, s.Err())
			}
			if now := dictVersions(t, s); slices.Contains(now, versions[0]) {
				t.Errorf("the dictionaries were %d and are %d", versions, now)
			}
		})
	}
}
