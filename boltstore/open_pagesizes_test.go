package boltstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestPageSizes: a file of another machine, whose pages have another size, is read,
// verified, written, compacted and encrypted as any other.
func TestPageSizes(t *testing.T) {
	from := testPath(t)
	db, srv := openTest(t, from, Options{decrypt: true}), server{}
	for i := range 600 {
		srv.set(configMap("ns", fmt.Sprintf("cm%04d", i), i+1,
			map[string]string{"words": fmt.Sprintf("word%03d", i), "k": strings.Repeat("v", 100)}))
	}
	relist(t, claimTest(t, db, Claim{Indexers: indexers}), "601", RelistOptions{}, srv.list(), 100)
	closeTest(t, db)
	for _, size := range []int{1024, 4096, 16384, 65536} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			path := testPath(t)
			src, err := bolt.Open(from, 0o600, &bolt.Options{ReadOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			dst, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: size})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(bolt.Compact(dst, src, 0), src.Close(), dst.Close()); err != nil {
				t.Fatal(err)
			}
			read := func(o Options) {
				t.Helper()
				db := openTest(t, path, o)
				defer closeTest(t, db)
				s, err := db.View(configMaps)
				if err != nil {
					t.Fatal(err)
				}
				obj, there, err := s.GetByKey("ns/cm0300")
				if all, listErr := s.ListErr(); err != nil || listErr != nil || !there || obj == nil ||
					len(all) != 600 {
					t.Errorf("%v, %d objects, %v %v", there, len(all), err, listErr)
				}
				if r, err := db.Check(); err != nil || !r.Sound() {
					t.Errorf("%+v %v", r, err)
				}
			}
			read(Options{ReadOnly: true, decrypt: true})
			db := openTest(t, path, Options{decrypt: true})
			s := claimTest(t, db, Claim{Indexers: indexers})
			if err := s.Update(configMap("ns", "cm0300", 700,
				map[string]string{"words": strings.Repeat("w", 300_000)})); err != nil {
				t.Fatal(err)
			}
			if err := s.Delete(configMap("ns", "cm0300", 701, nil)); err != nil {
				t.Fatal(err)
			}
			if err := s.Update(configMap("ns", "cm0300", 702, nil)); err != nil {
				t.Fatal(err)
			}
			if keys, err := s.IndexKeys("words", "word299"); err != nil || len(keys) != 1 {
				t.Error(keys, err)
			}
			if _, err := db.Compact(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
			closeTest(t, db)
			read(Options{decrypt: true})
			read(Options{Keyset: sealtest.Keyset()})
			read(Options{Keyset: sealtest.Keyset(), ReadOnly: true})
		})
	}
}
