package layout

import (
	"bytes"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// Items are the records of a source, by item key. Methods that read accept a nil
// receiver, except Cursor.
type Items struct {
	Bucket *bolt.Bucket
	Owner  format.Owner
	seal   *seal.Sealer
	id     []byte // of the source
	late   *pages.Late
}

// SealItems returns Items without a bucket, which can only seal.
func SealItems(s *seal.Sealer, id string) *Items {
	it := &Items{Owner: format.OwnerOf(id), seal: s}
	if s != nil {
		it.id = []byte(id)
	}
	return it
}

// Raw is a record in the file, valid within its transaction: its item key, and its
// bytes as stored, which are still sealed if In is set.
type Raw struct {
	Key, Stored []byte
	In          *Items
}

// Open returns the bytes of the record. They are empty if they cannot be opened.
func (r Raw) Open() []byte {
	if r.In == nil || r.In.seal == nil {
		return r.Stored
	}
	v, err := r.In.seal.OpenValue(r.Stored, place(placeRecord, r.In.id, r.Key))
	if err != nil {
		return unopened
	}
	return v
}

// Get returns the record at k, or nil if there is none.
func (it *Items) Get(k []byte) []byte {
	r, ok := it.Find(k)
	if !ok {
		return nil
	}
	return r.Open()
}

// Count is the number of records.
func (it *Items) Count() (n uint64, err error) {
	if it == nil {
		return 0, nil
	}
	var last []byte
	c := it.Cursor().c
	for k, _ := c.First(); k != nil; k, _ = c.Next() {
		if last != nil && bytes.Compare(last, k) >= 0 {
			return n, OutOfOrder(k)
		}
		last = k
		n++
	}
	return n, nil
}

// Find is Get, but leaves the record sealed.
func (it *Items) Find(k []byte) (Raw, bool) {
	if it == nil {
		return Raw{}, false
	}
	if err := it.late.Path(uint64(it.Bucket.Root()), k); err != nil {
		panic(err)
	}
	v := it.Bucket.Get(k)
	if v == nil {
		return Raw{}, false
	}
	return Raw{k, v, it}, true
}

// First returns the first record.
func (it *Items) First() (r Raw, ok bool, err error) {
	if it == nil {
		return Raw{}, false, nil
	}
	if err := it.late.Path(uint64(it.Bucket.Root()), nil); err != nil {
		return Raw{}, false, err
	}
	k, v := it.Bucket.Cursor().First()
	if k == nil {
		return Raw{}, false, nil
	}
	return Raw{k, v, it}, true, nil
}

// Put stores the record v at k.
func (it *Items) Put(k, v []byte) error {
	if it.seal != nil {
		var err error
		if v, err = it.seal.Value(v, place(placeRecord, it.id, k)); err != nil {
			return err
		}
	}
	return it.Bucket.Put(k, v)
}

// Delete removes the record at k.
func (it *Items) Delete(k []byte) error { return it.Bucket.Delete(k) }

// Each calls fn for all records, in the order of their item keys.
func (it *Items) Each(fn func(r Raw)) error {
	if it == nil {
		return nil
	}
	whole(it.late, it.Bucket)
	return it.Bucket.ForEach(func(k, v []byte) error { fn(Raw{k, v, it}); return nil })
}

// ItemCursor walks the records in the order of their item keys. The first result of each
// method is the item key, nil at the end.
type ItemCursor struct {
	c  *bolt.Cursor
	in *Items
}

// Cursor returns a cursor over the records.
func (it *Items) Cursor() ItemCursor {
	whole(it.late, it.Bucket)
	return ItemCursor{it.Bucket.Cursor(), it}
}

// Seek goes to the first record that is not before the item key at.
func (c ItemCursor) Seek(at []byte) ([]byte, Raw) { return c.result(c.c.Seek(at)) }

// First goes to the first record.
func (c ItemCursor) First() ([]byte, Raw) { return c.result(c.c.First()) }

// Next goes to the next record.
func (c ItemCursor) Next() ([]byte, Raw) { return c.result(c.c.Next()) }

func (c ItemCursor) result(k, v []byte) ([]byte, Raw) {
	if k == nil {
		return nil, Raw{}
	}
	return k, Raw{k, v, c.in}
}
