package layout

import (
	"bytes"
	"encoding/binary"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/index"
)

// IndexBucket is the name of the bucket of an index. bbolt refuses an empty name.
func IndexBucket(name string) []byte { return index.AppendKey(nil, name) }

// Indices are the indices of one generation.
type Indices struct {
	Bucket *bolt.Bucket
	seal   *seal.Sealer
	id     string
	late   *pages.Late
}

// Open returns the index called name, or nil if there is none.
func (x *Indices) Open(name string) *Entries {
	if x == nil {
		return nil
	}
	return x.entries(x.Bucket.Bucket(IndexBucket(name)), IndexBucket(name))
}

// Create returns the index called name, and makes its bucket if there is none.
func (x *Indices) Create(name string) (*Entries, error) {
	b, err := Create(x.Bucket, IndexBucket(name))
	return x.entries(b, IndexBucket(name)), err
}

func (x *Indices) entries(b *bolt.Bucket, bucket []byte) *Entries {
	if b == nil {
		return nil
	}
	return &Entries{Bucket: b, seal: x.seal, place: [2][]byte{[]byte(x.id), bucket}, late: x.late}
}

// Entries are the entries of one index. In an encrypted file the key of an entry is
//
//	uint16 length of the sealed value, the sealed value, the sealed item key
//
// where package index makes the values that are sealed.
type Entries struct {
	Bucket *bolt.Bucket
	seal   *seal.Sealer
	place  [2][]byte
	late   *pages.Late
}

// Cursor returns a cursor over the entries as they are stored.
func (e *Entries) Cursor() *bolt.Cursor {
	whole(e.late, e.Bucket)
	return e.Bucket.Cursor()
}

// Put stores entry, which index.AppendEntry made of value and key.
func (e *Entries) Put(entry []byte, value, key string) error {
	v := index.EntryData(value, key)
	k, err := e.name(entry, value, key)
	if err == nil && e.seal != nil && len(v) > 0 {
		v, err = e.seal.Value(v, place(placeData, e.place[0], e.place[1], k))
	}
	if err != nil {
		return err
	}
	return e.Bucket.Put(k, v)
}

// Remove removes entry, which index.AppendEntry made of value and key.
func (e *Entries) Remove(entry []byte, value, key string) error {
	k, err := e.name(entry, value, key)
	if err != nil {
		return err
	}
	return e.Bucket.Delete(k)
}

func (e *Entries) name(entry []byte, value, key string) ([]byte, error) {
	if e.seal == nil {
		return entry, nil
	}
	b, err := e.Prefix(value)
	if err != nil {
		return nil, err
	}
	k, err := e.seal.Name(index.AppendKey(nil, key), place(placeEntry, e.place[0], e.place[1], b))
	return append(b, k...), err
}

// Prefix is the beginning that all entries of value have, and no others.
func (e *Entries) Prefix(value string) ([]byte, error) {
	p := index.Prefix(nil, value)
	if e.seal == nil {
		return p, nil
	}
	p, err := e.seal.Name(p, place(placeValue, e.place[0], e.place[1]))
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(p))), p...), err
}

// Parse returns the index value and the object key of the entry stored as k and v.
func (e *Entries) Parse(k, v []byte) (value, key string, err error) {
	if e.seal == nil {
		return index.ParseEntry(k, v)
	}
	n := sealedNameLen
	if len(k) >= n {
		n += int(binary.BigEndian.Uint16(k))
	}
	if len(k) < n || n == sealedNameLen {
		return "", "", index.ErrMalformed
	}
	entry, err := e.seal.OpenName(k[sealedNameLen:n], place(placeValue, e.place[0], e.place[1]))
	if err != nil {
		return "", "", ErrUnopened
	}
	item, err := e.seal.OpenName(k[n:], place(placeEntry, e.place[0], e.place[1], k[:n]))
	if err != nil {
		return "", "", ErrUnopened
	}
	if len(v) > 0 {
		if v, err = e.seal.OpenValue(v, place(placeData, e.place[0], e.place[1], k)); err != nil {
			return "", "", ErrUnopened
		}
	}
	return index.ParseEntry(append(bytes.Clone(entry), item...), v)
}

// Keys calls fn with the key of each object that has the value.
func (e *Entries) Keys(value string, fn func(key string)) error {
	prefix, err := e.Prefix(value)
	if err != nil {
		return err
	}
	c := e.Cursor()
	for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
		_, key, err := e.Parse(k, v)
		if err != nil {
			return err
		}
		fn(key)
	}
	return nil
}

// Values calls fn with each index value, once.
func (e *Entries) Values(fn func(value string)) error {
	c := e.Cursor()
	for k, v := c.First(); k != nil; {
		value, _, err := e.Parse(k, v)
		if err != nil {
			return err
		}
		fn(value)
		prefix, err := e.Prefix(value)
		if err != nil {
			return err
		}
		at := index.Next(prefix)
		if k, v = c.Seek(at); k != nil && bytes.Compare(k, at) < 0 {
			return OutOfOrder(k)
		}
	}
	return nil
}

// Each calls fn for all entries. The receiver may be nil.
func (e *Entries) Each(fn func(value, key string, err error)) error {
	if e == nil {
		return nil
	}
	whole(e.late, e.Bucket)
	return e.Bucket.ForEach(func(k, v []byte) error { fn(e.Parse(k, v)); return nil })
}
