package layout

import (
	"encoding/binary"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// Blocks is the journal of a source: stored blocks by the seq of their first entry.
//
// bbolt rewrites a whole page when a value is added to it, and never splits a page of
// four values or fewer, however large. A block that shared a page with others would be
// written about four times. So a large block is the only value, under its seq, in its
// own bucket.
type Blocks struct{ Bucket *bolt.Bucket }

// smallBlock is the size in bytes below which blocks share a bucket.
const smallBlock = 512

// Put stores a block. There must be none at k.
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

// Delete removes the block at k.
func (j *Blocks) Delete(k []byte) error {
	err := Drop(j.Bucket, k)
	if errors.Is(err, berrors.ErrIncompatibleValue) {
		return j.Bucket.Delete(k)
	}
	return err
}

// Each calls fn for all blocks. The receiver may be nil.
func (j *Blocks) Each(fn func(k, v []byte)) {
	if j == nil {
		return
	}
	c := j.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		fn(k, v)
	}
}

// blockCursor walks the blocks as a bolt.Cursor does. The value is nil if the block's
// bucket has lost it.
type blockCursor struct {
	c *bolt.Cursor
	j *Blocks
}

// Cursor returns a cursor over the blocks.
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

// SealBlock returns the block at seq as it is stored. In an encrypted file its head
// stays readable, for trimming and seeking:
//
//	0x81, uvarint count of entries, uvarint time of the last one, the sealed block
func (t Tree) SealBlock(seq uint64, b []byte) ([]byte, error) {
	if t.Seal == nil {
		return b, nil
	}
	h, _, err := format.ParseBlockHead(seq, b)
	if err != nil {
		return nil, err
	}
	head := append(make([]byte, 0, maxBlockHead), sealedBlock)
	head = binary.AppendUvarint(head, h.Count)
	head = binary.AppendUvarint(head, uint64(h.Last))
	sealed, err := t.Seal.Value(b, t.blockPlace(seq, head))
	return append(head, sealed...), err
}

func (t Tree) blockPlace(seq uint64, head []byte) []byte {
	return place(placeBlock, []byte(t.ID), U64(seq), head)
}

// OpenBlock returns the block that [Tree.SealBlock] sealed.
func (t Tree) OpenBlock(seq uint64, v []byte) ([]byte, error) {
	if t.Seal == nil {
		return v, nil
	}
	_, n, err := t.BlockHead(seq, v)
	if err != nil {
		return nil, err
	}
	b, err := t.Seal.OpenValue(v[n:], t.blockPlace(seq, v[:n]))
	if err != nil {
		return nil, fmt.Errorf("journal block at %d: %w: %w", seq, faults.ErrDamaged, ErrUnopened)
	}
	return b, nil
}

// BlockHead returns the head of a stored block, and where it ends.
func (t Tree) BlockHead(seq uint64, v []byte) (h format.BlockHead, n int, err error) {
	if t.Seal == nil {
		return format.ParseBlockHead(seq, v)
	}
	if len(v) < 3 || v[0] != sealedBlock {
		return h, 0, fmt.Errorf("journal block at %d: %w: version or length", seq, faults.ErrDamaged)
	}
	return format.ParseHead(seq, v, 1)
}
