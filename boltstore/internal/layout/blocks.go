package layout

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
type Blocks struct{ Bucket *bolt.Bucket }

// smallBlock is the size below which a block is stored among others, in bytes.
const smallBlock = 512

// Put stores a block that is not there yet.
func (j *Blocks) Put(k, v []byte) error {
	if len(v) < smallBlock {
		return j.Bucket.Put(k, v)
	}
	b, err := j.Bucket.CreateBucket(k)
	if err != nil {
		return err
	}
	return b.Put(k, v)
}

func (j *Blocks) Delete(k []byte) error {
	err := j.Bucket.DeleteBucket(k)
	if errors.Is(err, berrors.ErrIncompatibleValue) {
		return j.Bucket.Delete(k)
	}
	return err
}

// each calls fn for all blocks. The receiver may be nil.
func (j *Blocks) Each(fn func(k, v []byte)) {
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
	j *Blocks
}

func (j *Blocks) Cursor() blockCursor { return blockCursor{j.Bucket.Cursor(), j} }

func (c blockCursor) First() (k, v []byte)           { return c.at(c.c.First()) }
func (c blockCursor) Last() (k, v []byte)            { return c.at(c.c.Last()) }
func (c blockCursor) Next() (k, v []byte)            { return c.at(c.c.Next()) }
func (c blockCursor) Prev() (k, v []byte)            { return c.at(c.c.Prev()) }
func (c blockCursor) Seek(seek []byte) (k, v []byte) { return c.at(c.c.Seek(seek)) }

func (c blockCursor) at(k, v []byte) ([]byte, []byte) {
	if k != nil && v == nil {
		v = c.j.Bucket.Bucket(k).Get(k)
	}
	return k, v
}
