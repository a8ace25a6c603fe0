package layout

import (
	"bytes"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// TestBoundBox: a value in a plain file is damage at another key, in another box and in
// another source's.
func TestBoundBox(t *testing.T) {
	db, err := bolt.Open(t.TempDir()+"/f.db", 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	value := format.WithSum([]byte("value"))
	err = db.Update(func(tx *bolt.Tx) error {
		box := func(id, kind, sub string) *Box {
			b, err := tx.CreateBucketIfNotExists([]byte(id + kind + sub))
			if err != nil {
				t.Fatal(err)
			}
			x := SealBox(nil, id, kind, sub)
			x.Bucket = b
			return x
		}
		here := box("id", "parked", "handler")
		if err := here.Put([]byte("k"), value); err != nil {
			return err
		}
		if got := here.Get([]byte("k")); !bytes.Equal(got, value) {
			t.Errorf("it reads %x", got)
		}
		stored := bytes.Clone(here.Bucket.Get([]byte("k")))
		for name, there := range map[string]*Box{"l": here, "k": box("other", "parked", "handler"),
			"m": box("id", "notes", ""), "n": box("id", "parked", "other")} {
			if err := there.Bucket.Put([]byte(name), stored); err != nil {
				return err
			}
			if _, err := format.CheckSum(there.Get([]byte(name))); err == nil {
				t.Errorf("it is accepted at %s", name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
