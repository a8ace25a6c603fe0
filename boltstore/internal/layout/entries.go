package layout

import (
	"bytes"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/index"
)

// IndexBucket is the name of the bucket of an index. bbolt refuses an empty name.
func IndexBucket(name string) []byte { return index.AppendKey(nil, name) }

// Indices are the indices of a source.
type Indices struct {
	Bucket *bolt.Bucket
	late   *pages.Late
}

// Open returns the index called name, or nil if there is none.
func (x *Indices) Open(name string) *Entries {
	if x == nil {
		return nil
	}
	return x.entries(x.Bucket.Bucket(IndexBucket(name)))
}

// Create returns the index called name, and makes its bucket if there is none.
func (x *Indices) Create(name string) (*Entries, error) {
	b, err := Create(x.Bucket, IndexBucket(name))
	return x.entries(b), err
}

// Drop removes the index called name, if there is one.
func (x *Indices) Drop(name string) error {
	if x.Bucket.Bucket(IndexBucket(name)) == nil {
		return nil
	}
	return Drop(x.Bucket, IndexBucket(name))
}

func (x *Indices) entries(b *bolt.Bucket) *Entries {
	if b == nil {
		return nil
	}
	return &Entries{b, x.late}
}

// Entries are the entries of one index, in the form of package index. They are not sealed.
type Entries struct {
	Bucket *bolt.Bucket
	late   *pages.Late
}

// Cursor returns a cursor over the entries.
func (e *Entries) Cursor() *bolt.Cursor {
	whole(e.late, e.Bucket)
	return e.Bucket.Cursor()
}

// Keys calls fn with the key of each object that has the value.
func (e *Entries) Keys(value string, fn func(key string)) error {
	prefix := index.Prefix(nil, value)
	c := e.Cursor()
	for k, v := c.Seek(prefix); k != nil && bytes.HasPrefix(k, prefix); k, v = c.Next() {
		_, key, err := index.ParseEntry(k, v)
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
		value, _, err := index.ParseEntry(k, v)
		if err != nil {
			return err
		}
		fn(value)
		at := index.Next(index.Prefix(nil, value))
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
	return e.Bucket.ForEach(func(k, v []byte) error { fn(index.ParseEntry(k, v)); return nil })
}
