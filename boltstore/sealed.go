package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/kubewake/kubewake/boltstore/internal/format"

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
type items struct {
	b      *bolt.Bucket
	seal   *seal.Sealer
	id     []byte // of the source
	gen    []byte
	keysAt []byte
}

// sealItems is without a bucket: it only seals.
func sealItems(s *seal.Sealer, id string, gen uint64) *items {
	it := &items{seal: s}
	if s != nil {
		it.id, it.gen = []byte(id), u64(gen)
		it.keysAt = place(placeItem, it.id)
	}
	return it
}

// raw is a record in the file, valid within its transaction: its item key and
// the record, which is still sealed if in is set. An item key that cannot be
// opened is empty, which is the key of nothing.
type raw struct {
	k, v []byte
	in   *items
}

// open returns the record.
func (r raw) open() []byte {
	if r.in == nil || r.in.seal == nil {
		return r.v
	}
	v, err := r.in.seal.OpenValue(r.v, place(placeRecord, r.in.id, r.in.gen, r.k))
	if err != nil {
		return unopened
	}
	return v
}

// Get returns the record at k, nil if there is none.
func (it *items) Get(k []byte) []byte {
	r, ok := it.find(k)
	if !ok {
		return nil
	}
	return r.open()
}

func (it *items) find(k []byte) (raw, bool) {
	if it == nil {
		return raw{}, false
	}
	name, err := it.seal.Name(k, it.keysAt)
	if err != nil {
		return raw{}, false
	}
	v := it.b.Get(name)
	if v == nil {
		return raw{}, false
	}
	return raw{k, v, it}, true
}

// Put stores the record v at k.
func (it *items) Put(k, v []byte) error {
	name, value, err := it.sealed(k, v)
	if err != nil {
		return err
	}
	return it.b.Put(name, value)
}

// sealed is what is stored for the record v at k.
func (it *items) sealed(k, v []byte) (name, value []byte, err error) {
	if it.seal == nil {
		return k, v, nil
	}
	if name, err = it.seal.Name(k, it.keysAt); err == nil {
		value, err = it.seal.Value(v, place(placeRecord, it.id, it.gen, k))
	}
	return name, value, err
}

// Delete removes the record at k.
func (it *items) Delete(k []byte) error {
	name, err := it.seal.Name(k, it.keysAt)
	if err != nil {
		return err
	}
	return it.b.Delete(name)
}

// each calls fn for all records. The receiver may be nil.
func (it *items) each(fn func(r raw)) error {
	if it == nil {
		return nil
	}
	return it.b.ForEach(func(k, v []byte) error { fn(it.raw(k, v)); return nil })
}

func (it *items) raw(name, v []byte) raw {
	k, err := it.seal.OpenName(name, it.keysAt)
	if err != nil {
		k = []byte{}
	}
	return raw{k, v, it}
}

// itemCursor walks the records in the file's order. The first result of each
// method is the place in that order, nil at the end.
type itemCursor struct {
	c  *bolt.Cursor
	in *items
}

func (it *items) Cursor() itemCursor { return itemCursor{it.b.Cursor(), it} }

// Seek goes to the first record that is not before the place at.
func (c itemCursor) Seek(at []byte) ([]byte, raw) { return c.result(c.c.Seek(at)) }

func (c itemCursor) First() ([]byte, raw) { return c.result(c.c.First()) }

func (c itemCursor) Next() ([]byte, raw) { return c.result(c.c.Next()) }

// SeekAfter goes to the first record behind the place at, nil being the start.
func (c itemCursor) SeekAfter(at []byte) ([]byte, raw) {
	k, v := c.c.Seek(at)
	if at != nil && bytes.Equal(k, at) {
		k, v = c.c.Next()
	}
	return c.result(k, v)
}

func (c itemCursor) result(name, v []byte) ([]byte, raw) {
	if name == nil {
		return nil, raw{}
	}
	return name, c.in.raw(name, v)
}

// indices are the indices of one generation.
type indices struct {
	b    *bolt.Bucket
	seal *seal.Sealer
	id   string
}

// open returns the index of that name, nil if there is none.
func (x *indices) open(name string) *entries {
	if x == nil {
		return nil
	}
	return x.entries(x.b.Bucket(indexBucket(name)), indexBucket(name))
}

func (x *indices) create(name string) (*entries, error) {
	b, err := x.b.CreateBucketIfNotExists(indexBucket(name))
	return x.entries(b, indexBucket(name)), err
}

func (x *indices) entries(b *bolt.Bucket, bucket []byte) *entries {
	if b == nil {
		return nil
	}
	e := sealEntries(x.seal, x.id, bucket)
	e.b = b
	return e
}

// sealEntries is without a bucket: it only seals.
func sealEntries(s *seal.Sealer, id string, bucket []byte) *entries {
	return &entries{seal: s, place: [2][]byte{[]byte(id), bucket}}
}

// entries are those of one index. In an encrypted file an entry is
//
//	uint16 length of the sealed value, the sealed value, the sealed item key
//
// and what is sealed is what package index makes of them.
type entries struct {
	b     *bolt.Bucket
	seal  *seal.Sealer
	place [2][]byte
}

// put stores an entry that index.AppendEntry has made of value and key.
func (e *entries) put(entry []byte, value, key string) error {
	k, v, err := e.sealed(entry, value, key)
	if err != nil {
		return err
	}
	return e.b.Put(k, v)
}

func (e *entries) remove(entry []byte, value, key string) error {
	k, err := e.name(entry, value, key)
	if err != nil {
		return err
	}
	return e.b.Delete(k)
}

// sealed is what is stored for an entry.
func (e *entries) sealed(entry []byte, value, key string) (k, v []byte, err error) {
	v = index.EntryData(value, key)
	if k, err = e.name(entry, value, key); err == nil && e.seal != nil && len(v) > 0 {
		v, err = e.seal.Value(v, place(placeData, e.place[0], e.place[1], k))
	}
	return k, v, err
}

func (e *entries) name(entry []byte, value, key string) ([]byte, error) {
	if e.seal == nil {
		return entry, nil
	}
	b, err := e.prefix(value)
	if err != nil {
		return nil, err
	}
	k, err := e.seal.Name(index.AppendKey(nil, key), place(placeEntry, e.place[0], e.place[1], b))
	return append(b, k...), err
}

// prefix is what exactly the entries of value begin with.
func (e *entries) prefix(value string) ([]byte, error) {
	p := index.Prefix(nil, value)
	if e.seal == nil {
		return p, nil
	}
	p, err := e.seal.Name(p, place(placeValue, e.place[0], e.place[1]))
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(p))), p...), err
}

var errUnopened = errors.New("it cannot be decrypted")

// parse returns the value and the key of the entry k, at which v is stored.
func (e *entries) parse(k, v []byte) (value, key string, err error) {
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
		return "", "", errUnopened
	}
	item, err := e.seal.OpenName(k[n:], place(placeEntry, e.place[0], e.place[1], k[:n]))
	if err != nil {
		return "", "", errUnopened
	}
	if len(v) > 0 {
		if v, err = e.seal.OpenValue(v, place(placeData, e.place[0], e.place[1], k)); err != nil {
			return "", "", errUnopened
		}
	}
	return index.ParseEntry(append(bytes.Clone(entry), item...), v)
}

// keys calls fn with each key that has the value.
func (e *entries) keys(value string, fn func(key string)) error {
	prefix, err := e.prefix(value)
	if err != nil {
		return err
	}
	c := e.b.Cursor()
	for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
		_, key, err := e.parse(k, v)
		if err != nil {
			return err
		}
		fn(key)
	}
	return nil
}

// values calls fn with each value, once.
func (e *entries) values(fn func(value string)) error {
	c := e.b.Cursor()
	for k, v := c.First(); k != nil; {
		value, _, err := e.parse(k, v)
		if err != nil {
			return err
		}
		fn(value)
		prefix, err := e.prefix(value)
		if err != nil {
			return err
		}
		at := index.Next(prefix)
		if k, v = c.Seek(at); k != nil && bytes.Compare(k, at) < 0 {
			return outOfOrder(k)
		}
	}
	return nil
}

// each calls fn for all entries. The receiver may be nil.
func (e *entries) each(fn func(value, key string, err error)) error {
	if e == nil {
		return nil
	}
	return e.b.ForEach(func(k, v []byte) error { fn(e.parse(k, v)); return nil })
}

// sealBlock seals a journal block. What trimming and seeking want of it stays
// readable before the sealed rest:
//
//	0x81, uvarint count of entries, uvarint time of the last one, the sealed block
func (t sourceTx) sealBlock(seq uint64, b []byte) ([]byte, error) {
	if t.seal == nil {
		return b, nil
	}
	h, _, err := format.ParseBlockHead(seq, b)
	if err != nil {
		return nil, err
	}
	head := append(make([]byte, 0, maxBlockHead), sealedBlock)
	head = binary.AppendUvarint(head, h.Count)
	head = binary.AppendUvarint(head, uint64(h.Last))
	sealed, err := t.seal.Value(b, t.blockPlace(seq, head))
	return append(head, sealed...), err
}

func (t sourceTx) blockPlace(seq uint64, head []byte) []byte {
	return place(placeBlock, []byte(t.id), u64(seq), head)
}

// openBlock returns the block as packBlock made it.
func (t sourceTx) openBlock(seq uint64, v []byte) ([]byte, error) {
	if t.seal == nil {
		return v, nil
	}
	_, n, err := t.blockHead(seq, v)
	if err != nil {
		return nil, err
	}
	b, err := t.seal.OpenValue(v[n:], t.blockPlace(seq, v[:n]))
	if err != nil {
		return nil, fmt.Errorf("journal block at %d: %w: %w", seq, ErrDamaged, errUnopened)
	}
	return b, nil
}

// blockHead reads the head of a stored block and says where it ends.
func (t sourceTx) blockHead(seq uint64, v []byte) (h format.BlockHead, n int, err error) {
	if t.seal == nil {
		return format.ParseBlockHead(seq, v)
	}
	if len(v) < 3 || v[0] != sealedBlock {
		return h, 0, fmt.Errorf("journal block at %d: %w: version or length", seq, ErrDamaged)
	}
	return format.ParseHead(seq, v, 1)
}
