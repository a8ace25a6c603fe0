package boltstore

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// TestBucketsInACycle: buckets that lead back to their parent, as old pages can, are
// opened once each. Otherwise each of them would lead to all others again and again.
func TestBucketsInACycle(t *testing.T) {
	path := t.TempDir() + "/cycle.db"
	db, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := claimTest(t, db, Claim{})
	if err := s.Add(configMap("web", "kept", 1, nil)); err != nil {
		t.Fatal(err)
	}
	s.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	raw, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	var parent uint64
	err = raw.Update(func(tx *bolt.Tx) error {
		src := tx.Bucket(layout.BucketSources).Bucket([]byte(s.id))
		pending, err := src.CreateBucketIfNotExists(layout.BucketPending)
		if err != nil {
			return err
		}
		for _, name := range []string{"a", "b", "c"} {
			b, err := pending.CreateBucketIfNotExists([]byte(name))
			if err == nil {
				err = b.Put([]byte("x"), make([]byte, 3000)) // too large to be inline
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = raw.View(func(tx *bolt.Tx) error {
			parent = uint64(tx.Bucket(layout.BucketSources).Bucket([]byte(s.id)).Bucket(layout.BucketPending).Root())
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := b[int(parent)*os.Getpagesize():]
	const head, element = 16, 16
	for i := range 3 { // internal/common/page.go of bbolt has the form
		e := page[head+element*i:]
		pos, ksize := binary.NativeEndian.Uint32(e[4:]), binary.NativeEndian.Uint32(e[8:])
		if binary.NativeEndian.Uint32(e) != 1 || !bytes.Contains([]byte("abc"), e[pos:pos+ksize]) {
			t.Fatal("no bucket where one was expected")
		}
		binary.NativeEndian.PutUint64(e[pos+ksize:], parent)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	opened := make(chan struct{})
	go func() {
		defer close(opened)
		db, err := Open(path, Options{})
		if err != nil {
			t.Error(err)
			return
		}
		if len(db.AsidePaths()) != 1 {
			t.Error("the file was not set aside")
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-opened:
	case <-time.After(time.Minute):
		t.Fatal("it does not open")
	}
}
