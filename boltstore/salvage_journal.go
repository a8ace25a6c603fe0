package boltstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// journal copies the newest blocks that follow one another without a gap. Plain handlers are
// not told the entries of others.
func (c *copier) journal(src sourceTx, ref pages.Bucket) {
	verify := func(k, v []byte) (b span, err error) {
		b.seq = binary.BigEndian.Uint64(k)
		drafts, err := src.unpackBlock(b.seq, v)
		b.next = b.seq + uint64(len(drafts))
		return b, err
	}
	var blocks []span
	c.note(c.blocks(ref, func(k, v []byte) {
		if len(k) != 8 || binary.BigEndian.Uint64(k) > c.m.Seq {
			return // of a later commit than meta
		}
		b, err := verify(k, v)
		if err != nil {
			c.note(err)
			return
		}
		blocks = append(blocks, b)
	}))
	from := c.unbroken(blocks)
	_ = c.blocks(ref, func(k, v []byte) { // the loop above noted the errors
		if len(k) != 8 || binary.BigEndian.Uint64(k) < from || binary.BigEndian.Uint64(k) > c.m.Seq {
			return
		}
		if _, err := verify(k, v); err != nil {
			return
		}
		c.do(len(v), func(src sourceTx, a *applier) error {
			j, err := src.CreateJournal()
			if err != nil {
				return err
			}
			if there, _ := j.Cursor().Seek(k); bytes.Equal(there, k) {
				return nil
			}
			block, err := c.reseal(src, k, v)
			if err != nil {
				return err
			}
			if err := j.Put(k, block); err != nil {
				return err
			}
			a.m.JournalBytes += uint64(len(block))
			return nil
		})
	})
}

// span is which entries a block has: from seq on, up to but without next.
type span struct{ seq, next uint64 }

// unbroken returns the first seq from which the blocks lack no entry up to the last.
func (c *copier) unbroken(blocks []span) (from uint64) {
	// Old pages may have a block a second time, anywhere. The first one counts.
	slices.SortStableFunc(blocks, func(a, b span) int { return cmp.Compare(a.seq, b.seq) })
	blocks = slices.CompactFunc(blocks, func(a, b span) bool { return a.seq == b.seq })
	from = c.m.Seq + 1
	for _, b := range slices.Backward(blocks) {
		if b.next != from {
			untold := ""
			if from-1 > c.m.Told {
				untold = "; plain handlers that have not been told of a delete among them will not be"
			}
			c.note(fmt.Errorf("journal: %w: entries %d to %d are missing%s", ErrDamaged, b.next, from-1, untold))
			break
		}
		from = b.seq
	}
	return from
}

// reseal returns the block v at the key k as the new file stores it.
func (c *copier) reseal(to sourceTx, k, v []byte) ([]byte, error) {
	if c.seals.from == c.seals.to {
		return v, nil
	}
	seq := binary.BigEndian.Uint64(k)
	b, err := sourceIn(nil, c.id, c.seals.from).OpenBlock(seq, v)
	if err != nil {
		return nil, err
	}
	return to.SealBlock(seq, b)
}
