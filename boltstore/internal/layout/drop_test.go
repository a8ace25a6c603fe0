package layout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// TestDrop: a bucket is deleted with its contents, but not if damage to the open file has
// put it into itself.
func TestDrop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	b, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var outer, inner uint64 // their roots
	fill := func(tx *bolt.Tx) error {
		top, err := tx.CreateBucketIfNotExists([]byte("top"))
		if err != nil {
			return err
		}
		o, err := top.CreateBucket([]byte("outer"))
		if err != nil {
			return err
		}
		i, err := o.CreateBucket([]byte("inner"))
		if err != nil {
			return err
		}
		for n := range 1000 { // more than is kept inline
			if err := errors.Join(o.Put(fmt.Append(nil, n), nil), i.Put(fmt.Append(nil, n), []byte("x"))); err != nil {
				return err
			}
		}
		return nil
	}
	roots := func(tx *bolt.Tx) error {
		o := tx.Bucket([]byte("top")).Bucket([]byte("outer"))
		outer, inner = uint64(o.RootPage()), uint64(o.Bucket([]byte("inner")).RootPage())
		return nil
	}
	drop := func(tx *bolt.Tx) error { return Drop(tx.Bucket([]byte("top")), []byte("outer")) }
	for _, fn := range []func(*bolt.Tx) error{fill, drop, fill} {
		if err := b.Update(fn); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.View(roots); err != nil || outer == 0 || inner == 0 {
		t.Fatal(outer, inner, err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head := func(root uint64) []byte { // of the bucket inner, after its name
		return binary.NativeEndian.AppendUint64([]byte("inner"), root)
	}
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(bytes.ReplaceAll(file, head(inner), head(outer)), 0); err != nil {
		t.Fatal(err)
	}
	if err := b.Update(drop); !errors.Is(err, ErrCircle) {
		t.Fatal(err)
	}
}
