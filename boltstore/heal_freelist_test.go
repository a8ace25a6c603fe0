package boltstore

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// TestFreelistHead: the head of the page with the list of free pages changes while the
// file is open, also while a transaction is under way. That commit or the next one heals the
// file. Otherwise bbolt would free other pages, even used ones, and with a great length use
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

				last := configMap("ns", "last", 501, nil)
				srv.set(last)
				must(t, s.Add(last))
				if err := db.Err(); err != nil {
					t.Error(err)
				}
				if db.replaced.Load() != 1 {
					t.Error("the file was not healed")
				}
				sameObjects(t, "after", srv.anys(), s.List())
				if r, err := db.Check(); err != nil || !r.Sound() {
					t.Errorf("%+v %v", r, err)
				}
			})
		}
	}
}
