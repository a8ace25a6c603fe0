package boltstore

import (
	"errors"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// blocks is a source's journal: blocks, as stored, by the seq of their first
// entry. bbolt writes anew what shares a page with something new, and never
// splits a page of four values or less, however large they are: a block that
// was appended to others would be written some four times. One that is not
// small is therefore the only value, under its seq, in a bucket of its own.
type blocks struct{ b *bolt.Bucket }

// smallBlock is the size below which a block is stored among others, in bytes.
const smallBlock = 512

// journal returns nil if there is none.
func (t sourceTx) journal() *blocks {
	if b := t.root.Bucket(bucketJournal); b != nil {
		return &blocks{b}
	}
	return nil
}

func (t sourceTx) createJournal() (*blocks, error) {
	b, err := t.root.CreateBucketIfNotExists(bucketJournal)
	if err != nil {
		return nil, err
	}
	b.FillPercent = 0.9 // appended in order
	return &blocks{b}, nil
}

// Put stores a block that is not there yet.
func (j *blocks) Put(k, v []byte) error {
	if len(v) < smallBlock {
		return j.b.Put(k, v)
	}
	b, err := j.b.CreateBucket(k)
	if err != nil {
		return err
	}
	return b.Put(k, v)
}

func (j *blocks) Delete(k []byte) error {
	err := j.b.DeleteBucket(k)
	if errors.Is(err, berrors.ErrIncompatibleValue) {
		return j.b.Delete(k)
	}
	return err
}

// each calls fn for all blocks. The receiver may be nil.
func (j *blocks) each(fn func(k, v []byte)) {
	if j == nil {
		return
	}
	c := j.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		fn(k, v)
	}
}

// blockCursor walks the blocks. A block that is missing in its bucket is nil.
type blockCursor struct {
	c *bolt.Cursor
	j *blocks
}

func (j *blocks) Cursor() blockCursor { return blockCursor{j.b.Cursor(), j} }

func (c blockCursor) First() (k, v []byte)           { return c.at(c.c.First()) }
func (c blockCursor) Last() (k, v []byte)            { return c.at(c.c.Last()) }
func (c blockCursor) Next() (k, v []byte)            { return c.at(c.c.Next()) }
func (c blockCursor) Prev() (k, v []byte)            { return c.at(c.c.Prev()) }
func (c blockCursor) Seek(seek []byte) (k, v []byte) { return c.at(c.c.Seek(seek)) }

func (c blockCursor) at(k, v []byte) ([]byte, []byte) {
	if k != nil && v == nil {
		v = c.j.b.Bucket(k).Get(k)
	}
	return k, v
}
