package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// TestFreelistHead: the head of the page with the list of free pages changes while the
// file is open, also while a transaction is under way. Then that commit or the next one
// fails, and is the last. Otherwise bbolt would free other pages, even used ones, and with a great length use
// up all memory.
func TestFreelistHead(t *testing.T) {
	for what, change := range map[string]func(head []byte){
		"id":       func(b []byte) { b[0] ^= 4 },
		"zeros":    func(b []byte) { clear(b) },
		"noise":    func(b []byte) { copy(b, "no page of bbolt's, by any means") },
		"flags":    func(b []byte) { b[8] ^= 2 },
		"count":    func(b []byte) { binary.NativeEndian.PutUint16(b[10:], 2000) },
		"one more": func(b []byte) { b[12]++ },
		"length":   func(b []byte) { binary.NativeEndian.PutUint32(b[12:], 100_000) },
	} {
		for when, meanwhile := range map[string]bool{" before": false, " meanwhile": true} {
			t.Run(what+when, func(t *testing.T) {
				path := testPath(t)
				db := openTest(t, path, Options{})
				s := claimTest(t, db, Claim{})
				srv := server{}
				for i := range 400 {
					srv.set(configMap("ns", fmt.Sprint("x", i), i+1, nil))
				}
				relist(t, s, "500", RelistOptions{}, srv.list(), 50)
				f, err := os.OpenFile(path, os.O_RDWR, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				p, err := pages.FileOf(f)
				if err != nil {
					t.Fatal(err)
				}
				head, at := make([]byte, pages.HeadSize), int64(p.Freelist())*int64(p.PageSize())
				if _, err := f.ReadAt(head, at); err != nil {
					t.Fatal(err)
				}
				change(head)
				damage := func() error { _, err := f.WriteAt(head, at); return err }
				if meanwhile {
					damage = sync.OnceValue(damage)
					db.h.setHook(func(*bolt.Tx) error { return damage() })
				} else {
					must(t, damage())
				}

				if err := s.Add(configMap("ns", "last", 501, nil)); !errors.Is(err, ErrDamaged) {
					t.Error(err)
				}
				db.h.setHook(nil)
				nothingIsWritten(t, db, s)
				killed(t, db)
				db = openTest(t, path, Options{})
				s = claimTest(t, db, Claim{})
				sameObjects(t, "after", srv.anys(), s.List())
				must(t, s.Add(configMap("ns", "last", 501, nil)))
			})
		}
	}
}
