package boltstore

import (
	"encoding/binary"
	"time"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// appendBlock journals drafts under the seqs that follow last and returns the
// block's size.
func (t sourceTx) appendBlock(last uint64, drafts []format.Draft) (int, error) {
	j, err := t.CreateJournal()
	if err != nil {
		return 0, err
	}
	b, err := t.SealBlock(last+1, t.Owner().PackBlock(last+1, drafts))
	if err != nil {
		return 0, err
	}
	return len(b), j.Put(layout.U64(last+1), b)
}

// trimJournal drops a few of the oldest blocks if the journal is too large or they are
// too old, and no handler needs them any more. It drops at most that many.
func (t sourceTx) trimJournal(m *sourceMeta, maxBytes int64, before time.Time, atMost int) error {
	j := t.Journal()
	if j == nil {
		return nil
	}
	keep := m.Told
	if list := m.openMark(); list != nil {
		keep = min(keep, list.From) // readers go back to there
	}
	for range atMost {
		c := j.Cursor()
		k, v := c.First()
		if k == nil {
			return nil
		}
		seq := binary.BigEndian.Uint64(k)
		if seq > keep || seq > m.Seq {
			return nil
		}
		head, _, err := t.BlockHead(seq, v)
		if err != nil {
			head = format.BlockHead{Count: 1} // damaged and useless
		}
		if seq+head.Count-1 > keep {
			return nil
		}
		if int64(m.JournalBytes) <= maxBytes && !time.Unix(0, head.Last).Before(before) {
			return nil
		}
		m.JournalBytes -= min(m.JournalBytes, uint64(len(v)))
		if err := j.Delete(k); err != nil {
			return err
		}
	}
	return nil
}

// journalFrom is the time before which the journal's blocks are too old. Unless the clock
// is known to be right, only this life counts: the blocks that it found in the file may
// be minutes old.
func (c *committer) journalFrom() time.Time {
	now := c.db.opts.Clock.Now()
	since, device := &c.db.whileOpen.since, c.db.device
	if now.Sub(since.at)+device.slept()-since.slept < c.db.opts.JournalAge && !device.right() {
		return time.Unix(0, 0)
	}
	return now.Add(-c.db.opts.JournalAge)
}

// seekBlock finds the block that holds seq, or the first one after it. b is as stored.
func (t sourceTx) seekBlock(j *layout.Blocks, seq uint64) (first uint64, b []byte, err error) {
	c := j.Cursor()
	k, v := c.Seek(layout.U64(seq))
	if k == nil || binary.BigEndian.Uint64(k) > seq {
		pk, pv := c.Prev()
		if k == nil {
			pk, pv = c.Last()
		}
		if pk != nil {
			prev := binary.BigEndian.Uint64(pk)
			head, _, err := t.BlockHead(prev, pv)
			if err != nil {
				return 0, nil, err
			}
			if prev+head.Count > seq {
				return prev, pv, nil
			}
		}
	}
	if k == nil {
		return 0, nil, nil
	}
	return binary.BigEndian.Uint64(k), v, nil
}

// unpackBlock returns the entries of the block that is stored as b, whose first has that
// seq.
func (t sourceTx) unpackBlock(first uint64, b []byte) ([]format.Draft, error) {
	b, err := t.OpenBlock(first, b)
	if err != nil {
		return nil, err
	}
	return t.Owner().UnpackBlock(first, b)
}

// journal writes the drafts, in as many blocks as their size requires, and moves the seq.
func (a *applier) journal() error {
	for left := a.drafts; len(left) > 0; {
		block := plainDrafts(a.s.coder.owner, left)
		n, err := a.src.appendBlock(a.m.Seq, block)
		if err != nil {
			return err
		}
		left = left[len(block):]
		a.m.Seq += uint64(len(block))
		a.m.JournalBytes += uint64(n)
		a.journaled = append(a.journaled, block...)
	}
	return nil
}
