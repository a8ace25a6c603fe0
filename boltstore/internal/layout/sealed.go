package layout

import (
	"bytes"
	"encoding/binary"
	"errors"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/index"
)

// What is between the buckets of an encrypted file and the rest of the
// package: keys and values come and go as they are in a plain one. Each is
// bound to its place by its associated data. The order in the file is that of
// the sealed keys: stable, and of no meaning.
//
// Sealing fails only for sizes that bbolt would refuse anyway.

// place names where something is: a kind of thing and what tells it from others
// of its kind.
func place(kind byte, parts ...[]byte) []byte {
	p := []byte{kind}
	for _, part := range parts {
		p = append(binary.AppendUvarint(p, uint64(len(part))), part...)
	}
	return p
}

const (
	placeSource   = 's' // the name of a source's bucket
	placeMeta     = 'm' // of source
	placeItem     = 'i' // an item's key, of source
	placeRecord   = 'r' // of source, generation, item key
	placeValue    = 'v' // an index value, of source, index
	placeEntry    = 'e' // an entry's item key, of source, index, sealed value
	placeData     = 'd' // of source, index, sealed entry
	placeBlock    = 'b' // of source, seq, head
	placeBox      = 'x' // a key in a box, of source, kind, sub
	placeBoxed    = 'y' // a value in a box, of that place, stored key
	placeKeys     = 'k' // what tells data keys from others
	placeProgress = 'p' // of source
	sealedBlock   = 0x81
	maxBlockHead  = 1 + 2*binary.MaxVarintLen64
	sealedNameLen = 2 // bytes of the length of a sealed index value
)

// unopened stands for a record that cannot be opened. No record is as short.
var unopened = []byte{}

// items are the records of one generation, by item key.
type Items struct {
	Bucket *bolt.Bucket
	seal   *seal.Sealer
	id     []byte // of the source
	gen    []byte
	keysAt []byte
}

// sealItems is without a bucket: it only seals.
func SealItems(s *seal.Sealer, id string, gen uint64) *Items {
	it := &Items{seal: s}
	if s != nil {
		it.id, it.gen = []byte(id), U64(gen)
		it.keysAt = place(placeItem, it.id)
	}
	return it
}

// raw is a record in the file, valid within its transaction: its item key and
// the record, which is still sealed if in is set. An item key that cannot be
// opened is empty, which is the key of nothing.
type Raw struct {
	Key, Stored []byte
	In          *Items
}

// open returns the record.
func (r Raw) Open() []byte {
	if r.In == nil || r.In.seal == nil {
		return r.Stored
	}
	v, err := r.In.seal.OpenValue(r.Stored, place(placeRecord, r.In.id, r.In.gen, r.Key))
	if err != nil {
		return unopened
	}
	return v
}

// Get returns the record at k, nil if there is none.
func (it *Items) Get(k []byte) []byte {
	r, ok := it.Find(k)
	if !ok {
		return nil
	}
	return r.Open()
}

func (it *Items) Find(k []byte) (Raw, bool) {
	if it == nil {
		return Raw{}, false
	}
	name, err := it.seal.Name(k, it.keysAt)
	if err != nil {
		return Raw{}, false
	}
	v := it.Bucket.Get(name)
	if v == nil {
		return Raw{}, false
	}
	return Raw{k, v, it}, true
}

// Put stores the record v at k.
func (it *Items) Put(k, v []byte) error {
	name, value, err := it.sealed(k, v)
	if err != nil {
		return err
	}
	return it.Bucket.Put(name, value)
}

// sealed is what is stored for the record v at k.
func (it *Items) sealed(k, v []byte) (name, value []byte, err error) {
	if it.seal == nil {
		return k, v, nil
	}
	if name, err = it.seal.Name(k, it.keysAt); err == nil {
		value, err = it.seal.Value(v, place(placeRecord, it.id, it.gen, k))
	}
	return name, value, err
}

// Delete removes the record at k.
func (it *Items) Delete(k []byte) error {
	name, err := it.seal.Name(k, it.keysAt)
	if err != nil {
		return err
	}
	return it.Bucket.Delete(name)
}

// each calls fn for all records. The receiver may be nil.
func (it *Items) Each(fn func(r Raw)) error {
	if it == nil {
		return nil
	}
	return it.Bucket.ForEach(func(k, v []byte) error { fn(it.RawOf(k, v)); return nil })
}

func (it *Items) RawOf(name, v []byte) Raw {
	k, err := it.seal.OpenName(name, it.keysAt)
	if err != nil {
		k = []byte{}
	}
	return Raw{k, v, it}
}

// itemCursor walks the records in the file's order. The first result of each
// method is the place in that order, nil at the end.
type ItemCursor struct {
	c  *bolt.Cursor
	in *Items
}

func (it *Items) Cursor() ItemCursor { return ItemCursor{it.Bucket.Cursor(), it} }

// Seek goes to the first record that is not before the place at.
func (c ItemCursor) Seek(at []byte) ([]byte, Raw) { return c.result(c.c.Seek(at)) }

func (c ItemCursor) First() ([]byte, Raw) { return c.result(c.c.First()) }

func (c ItemCursor) Next() ([]byte, Raw) { return c.result(c.c.Next()) }

// SeekAfter goes to the first record behind the place at, nil being the start.
func (c ItemCursor) SeekAfter(at []byte) ([]byte, Raw) {
	k, v := c.c.Seek(at)
	if at != nil && bytes.Equal(k, at) {
		k, v = c.c.Next()
	}
	return c.result(k, v)
}

func (c ItemCursor) result(name, v []byte) ([]byte, Raw) {
	if name == nil {
		return nil, Raw{}
	}
	return name, c.in.RawOf(name, v)
}

// indices are the indices of one generation.
type indices struct {
	Bucket *bolt.Bucket
	seal   *seal.Sealer
	id     string
}

// open returns the index of that name, nil if there is none.
func (x *indices) Open(name string) *Entries {
	if x == nil {
		return nil
	}
	return x.entries(x.Bucket.Bucket(IndexBucket(name)), IndexBucket(name))
}

func (x *indices) Create(name string) (*Entries, error) {
	b, err := x.Bucket.CreateBucketIfNotExists(IndexBucket(name))
	return x.entries(b, IndexBucket(name)), err
}

func (x *indices) entries(b *bolt.Bucket, bucket []byte) *Entries {
	if b == nil {
		return nil
	}
	e := sealEntries(x.seal, x.id, bucket)
	e.Bucket = b
	return e
}

// sealEntries is without a bucket: it only seals.
func sealEntries(s *seal.Sealer, id string, bucket []byte) *Entries {
	return &Entries{seal: s, place: [2][]byte{[]byte(id), bucket}}
}

// entries are those of one index. In an encrypted file an entry is
//
//	uint16 length of the sealed value, the sealed value, the sealed item key
//
// and what is sealed is what package index makes of them.
type Entries struct {
	Bucket *bolt.Bucket
	seal   *seal.Sealer
	place  [2][]byte
}

// put stores an entry that index.AppendEntry has made of value and key.
func (e *Entries) Put(entry []byte, value, key string) error {
	k, v, err := e.sealed(entry, value, key)
	if err != nil {
		return err
	}
	return e.Bucket.Put(k, v)
}

func (e *Entries) Remove(entry []byte, value, key string) error {
	k, err := e.name(entry, value, key)
	if err != nil {
		return err
	}
	return e.Bucket.Delete(k)
}

// sealed is what is stored for an entry.
func (e *Entries) sealed(entry []byte, value, key string) (k, v []byte, err error) {
	v = index.EntryData(value, key)
	if k, err = e.name(entry, value, key); err == nil && e.seal != nil && len(v) > 0 {
		v, err = e.seal.Value(v, place(placeData, e.place[0], e.place[1], k))
	}
	return k, v, err
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

// prefix is what exactly the entries of value begin with.
func (e *Entries) Prefix(value string) ([]byte, error) {
	p := index.Prefix(nil, value)
	if e.seal == nil {
		return p, nil
	}
	p, err := e.seal.Name(p, place(placeValue, e.place[0], e.place[1]))
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(p))), p...), err
}

var ErrUnopened = errors.New("it cannot be decrypted")

// parse returns the value and the key of the entry k, at which v is stored.
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

// keys calls fn with each key that has the value.
func (e *Entries) Keys(value string, fn func(key string)) error {
	prefix, err := e.Prefix(value)
	if err != nil {
		return err
	}
	c := e.Bucket.Cursor()
	for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
		_, key, err := e.Parse(k, v)
		if err != nil {
			return err
		}
		fn(key)
	}
	return nil
}

// values calls fn with each value, once.
func (e *Entries) Values(fn func(value string)) error {
	c := e.Bucket.Cursor()
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

// each calls fn for all entries. The receiver may be nil.
func (e *Entries) Each(fn func(value, key string, err error)) error {
	if e == nil {
		return nil
	}
	return e.Bucket.ForEach(func(k, v []byte) error { fn(e.Parse(k, v)); return nil })
}
