package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"

	"github.com/vmihailenco/msgpack/v5"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// collapseBlocks is how many blocks a commit collapses at most. It is more than a commit of
// changes writes, so that later ones catch up after a relist, and too few to stall one.
const collapseBlocks = 8

// collapseOldest collapses the entries that slow handlers need of the oldest blocks, so
// that these blocks can be trimmed. It does so while the journal is larger, or its blocks
// are older, than the options allow.
func (s *Store) collapseOldest(t sourceTx, m *sourceMeta, all map[string]*handlerState) error {
	j := t.Journal()
	if j == nil {
		return nil
	}
	told := map[string]uint64{} // before this commit collapses anything
	for name, st := range all {
		told[name] = max(s.knownSeq.Load(), st.Cursor, st.reach)
	}
	size, before := int64(m.JournalBytes), s.db.journalFrom().UnixNano()
	c := j.Cursor()
	k, v := c.First()
	for done := 0; k != nil && done < collapseBlocks; k, v = c.Next() {
		first := binary.BigEndian.Uint64(k)
		head, _, err := t.BlockHead(first, v)
		if err != nil {
			head = format.BlockHead{Count: 1, Last: before}
		}
		if size <= s.db.opts.JournalBytes && head.Last >= before {
			return nil
		}
		last := first + head.Count - 1
		if last > m.Told || last > m.Seq {
			return nil // kept for plain handlers, or not committed
		}
		size -= int64(len(v))
		behind := maps.Clone(all)
		maps.DeleteFunc(behind, func(_ string, st *handlerState) bool { return st.mark >= last })
		if len(behind) == 0 {
			continue
		}
		if err := s.parkBlock(t, m, behind, told, first, last, v); err != nil {
			return err
		}
		done++
	}
	return nil
}

// parkBlock collapses one block for the handlers behind. told has, for each handler, the
// seq up to which it may have been told, or is told while the commit is under way.
func (s *Store) parkBlock(t sourceTx, m *sourceMeta, behind map[string]*handlerState, told map[string]uint64, first, last uint64, block []byte) error {
	drafts, err := t.unpackBlock(first, block)
	for name, st := range behind {
		err := err
		if err == nil && st.mark+1 < first {
			err = fmt.Errorf("journal entries from %d to %d are missing: %w", st.mark+1, first-1, ErrDamaged)
		}
		if err != nil {
			if err := s.restart(t, m, name, st, err); err != nil {
				return err
			}
			continue
		}
		b, err := t.createParked(name)
		if err != nil {
			return err
		}
		for i, d := range drafts {
			if seq := first + uint64(i); err == nil && st.needs(seq, d.Key) {
				err = st.parkKey(b, d.Key, told[name], numbered{seq, d})
			}
		}
		switch {
		case errors.Is(err, ErrDamaged):
			err = s.restart(t, m, name, st, err)
		case err == nil:
			st.mark, st.Cursor = last, max(st.Cursor, last)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// numbered is a draft with its seq.
type numbered struct {
	seq uint64
	format.Draft
}

// parkKey adds entries of a key, in order, to those parked under the key, unless they are
// there already. Entries that were collapsed before have one seq. The error is ErrDamaged
// if the parked key is damaged.
func (st *handlerState) parkKey(b *layout.Box, key string, told uint64, entries ...numbered) error {
	k := index.AppendKey(nil, key)
	p := &parked{Key: key}
	old := b.Get(k)
	if old != nil {
		var err error
		if p, err = parseParked(old); err != nil {
			return fmt.Errorf("the parked entries of %q: %w", key, err)
		}
	}
	there, known, changed := p.Last, p.Count > 0, false
	for _, e := range entries {
		switch {
		case !known || e.seq > there:
			if p.Count > 0 {
				st.Collapsed++
			}
			p.fold(e.seq, e.Draft, told)
		case e.Type == cache.Added && p.Prev != nil:
			// The handler was shown the object and has not acknowledged it. Changes
			// since were collapsed first.
			p.Prev = nil
		default:
			continue
		}
		changed = true
	}
	if !changed {
		return nil
	}
	return st.putParked(b, k, old, p)
}

// putParked stores a parked key at k, in place of old.
func (st *handlerState) putParked(b *layout.Box, k, old []byte, p *parked) error {
	if old != nil {
		st.Parked--
		st.ParkedBytes -= min(st.ParkedBytes, uint64(len(old)))
	}
	data, err := msgpack.Marshal(p)
	if err != nil {
		return fmt.Errorf("boltstore: park %q: %w", p.Key, err)
	}
	data = format.WithSum(data)
	st.Parked++
	st.ParkedBytes += uint64(len(data))
	return b.Put(k, data)
}
