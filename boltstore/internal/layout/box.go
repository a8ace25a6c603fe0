package layout

import (
	"bytes"
	"encoding/binary"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// Box is a bucket of values that are sealed one by one. Each value has a sum, of
// [format.WithSum]. Methods that read accept a nil receiver.
type Box struct {
	Bucket *bolt.Bucket
	seal   *seal.Sealer
	place  []byte
}

// SealBox returns a box without a bucket, which can only seal values.
func SealBox(s *seal.Sealer, id, kind, sub string) *Box {
	return &Box{seal: s, place: place(placeBox, []byte(id), []byte(kind), []byte(sub))}
}

// at is the place of the value at k.
func (x *Box) at(k []byte) []byte { return place(placeBoxed, x.place, k) }

// Get returns the value at k, or nil if there is none. A value that cannot be decrypted
// is empty, so that its sum is missing.
func (x *Box) Get(k []byte) []byte {
	if x == nil {
		return nil
	}
	return x.Open(k, x.Bucket.Get(k))
}

// Open returns the value v that is stored at k.
func (x *Box) Open(k, v []byte) []byte {
	if x.seal == nil {
		return x.bound(k, v)
	}
	if v == nil {
		return v
	}
	plain, err := x.seal.OpenValue(v, x.at(k))
	if err != nil {
		return unopened
	}
	return plain
}

// Put stores v at k.
func (x *Box) Put(k, v []byte) error {
	if x.seal == nil {
		return x.Bucket.Put(k, x.bound(k, v))
	}
	v, err := x.seal.Value(v, x.at(k))
	if err != nil {
		return err
	}
	return x.Bucket.Put(k, v)
}

// bound changes a value's sum by its place, and changes a bound value's sum back. So in a
// plain file, too, a value in another place counts as damage.
func (x *Box) bound(k, v []byte) []byte {
	n := len(v) - 4
	if n < 0 {
		return v
	}
	b := bytes.Clone(v)
	binary.LittleEndian.PutUint32(b[n:], binary.LittleEndian.Uint32(b[n:])^uint32(format.OwnerOf(string(x.at(k)))))
	return b
}

// Delete removes the value at k.
func (x *Box) Delete(k []byte) error { return x.Bucket.Delete(k) }

// Each calls fn for all values, in the order of their keys.
func (x *Box) Each(fn func(k, v []byte)) error {
	if x == nil {
		return nil
	}
	return x.Bucket.ForEach(func(k, v []byte) error { fn(k, x.Open(k, v)); return nil })
}

// Page calls fn with values from the key from on until fn returns false. nil is the
// start. next is the key of that value, nil at the end.
func (x *Box) Page(from []byte, fn func(v []byte) bool) (next []byte, err error) {
	return Page(x.Bucket.Cursor(), from, func(k, v []byte) bool { return fn(x.Open(k, v)) })
}
