package layout

import (
	"bytes"
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// Box is a bucket of values that are sealed one by one. In a box with names the keys
// are sealed, too. Each value has a sum, of [format.WithSum]. Methods that read accept a
// nil receiver.
type Box struct {
	Bucket *bolt.Bucket
	seal   *seal.Sealer
	Place  []byte
	names  bool
}

// SealBox returns a box without a bucket, which can only seal keys and values.
func SealBox(s *seal.Sealer, id, kind, sub string, names bool) *Box {
	return &Box{seal: s, Place: place(placeBox, []byte(id), []byte(kind), []byte(sub)), names: names}
}

func (x *Box) name(k []byte) ([]byte, error) {
	if !x.names {
		return k, nil
	}
	return x.seal.Name(k, x.Place)
}

// at is the place of the value at the stored key name.
func (x *Box) at(name []byte) []byte { return place(placeBoxed, x.Place, name) }

// Get returns the value at k, or nil if there is none. A value that cannot be decrypted
// is empty, so that its sum is missing.
func (x *Box) Get(k []byte) []byte {
	if x == nil {
		return nil
	}
	name, err := x.name(k)
	if err != nil {
		return unopened
	}
	return x.Open(name, x.Bucket.Get(name))
}

// Open returns the value v that is stored at name.
func (x *Box) Open(name, v []byte) []byte {
	if x.seal == nil {
		return x.freed(name, v)
	}
	if v == nil {
		return v
	}
	plain, err := x.seal.OpenValue(v, x.at(name))
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
	name, err := x.name(k)
	if err == nil {
		v, err = x.seal.Value(v, x.at(name))
	}
	if err != nil {
		return err
	}
	return x.Bucket.Put(name, v)
}

// bound changes a value's sum by its place, and changes a bound value's sum back. So in a
// plain file, too, a value in another place counts as damage.
func (x *Box) bound(name, v []byte) []byte {
	n := len(v) - 4
	if n < 0 {
		return v
	}
	b := bytes.Clone(v)
	binary.LittleEndian.PutUint32(b[n:], binary.LittleEndian.Uint32(b[n:])^uint32(format.OwnerOf(string(x.at(name)))))
	return b
}

// freed reverses bound. Earlier programs stored values that are not bound.
func (x *Box) freed(name, v []byte) []byte {
	if _, err := format.CheckSum(v); err == nil {
		return v
	}
	return x.bound(name, v)
}

// Delete removes the value at k.
func (x *Box) Delete(k []byte) error {
	name, err := x.name(k)
	if err != nil {
		return err
	}
	return x.Bucket.Delete(name)
}

// Each calls fn for all values, in the file's order, with their keys as stored.
func (x *Box) Each(fn func(name, v []byte)) error {
	if x == nil {
		return nil
	}
	return x.Bucket.ForEach(func(name, v []byte) error { fn(name, x.Open(name, v)); return nil })
}

// Page calls fn with values from the place from on until fn returns false. nil is the
// start. next is the place of that value, nil at the end. In a box with names, a place
// under other data keys counts as the start.
func (x *Box) Page(from []byte, fn func(v []byte) bool) (next []byte, err error) {
	order, err := x.order()
	if err != nil {
		return nil, err
	}
	at, known := bytes.CutPrefix(from, order)
	if !known {
		at = nil
	}
	next, err = Page(x.Bucket.Cursor(), at, func(name, v []byte) bool { return fn(x.Open(name, v)) })
	if next == nil || err != nil {
		return nil, err
	}
	return append(order, next...), nil
}

// order identifies the order of the box. Other data keys give another order.
func (x *Box) order() ([]byte, error) {
	if !x.names {
		return KeysID(nil)
	}
	return KeysID(x.seal)
}

// KeysID identifies data keys in 8 bytes. Without data keys they are zeros.
func KeysID(s *seal.Sealer) ([]byte, error) {
	if s == nil {
		return make([]byte, 8), nil
	}
	id, err := s.Name(nil, place(placeKeys))
	if err == nil && len(id) < 8 {
		err = fmt.Errorf("boltstore: the name of the data keys has %d bytes", len(id))
	}
	if err != nil {
		return nil, err
	}
	return bytes.Clone(id[len(id)-8:]), nil
}

// Some says whether the box has any value.
func (x *Box) Some() bool {
	if x == nil {
		return false
	}
	k, _ := x.Bucket.Cursor().First()
	return k != nil
}
