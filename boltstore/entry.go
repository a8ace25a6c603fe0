package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// Entry is one committed change, with the object before it and the one after. It is
// immutable and safe for concurrent use. The objects it returns are shared and must not
// be modified.
type Entry struct {
	Seq  uint64
	Type cache.DeltaType // Added, Updated or Deleted
	Key  string
	Time time.Time // of the commit
	// Born is the seq at which the object, by its UID, was first stored. It is above
	// every seq if the entry is Unknown.
	Born uint64

	s       *source
	present bool // it had the record that reads show when it was made
	next    []byte
	prev    format.Diff
	obj     any

	once    sync.Once
	prevObj any
	prevErr error
}

// bornUnknown is the Born of an object that the file has never held.
const bornUnknown = math.MaxUint64

// Unknown says whether the entry is the delete of an object that the file did
// not hold.
func (e *Entry) Unknown() bool { return e.Type == cache.Deleted && e.Born == bornUnknown }

// newEntry makes an entry of a draft and takes Born from its records.
func newEntry(s *source, seq uint64, d format.Draft) *Entry {
	e := entryOf(s, seq, d)
	from := [2]func() []byte{func() []byte { return d.Next }, d.Previous}
	if d.Type == cache.Deleted {
		from[0], from[1] = from[1], from[0] // the deleted object's record comes first, not the tombstone's
	}
	for _, raw := range from {
		raw := raw()
		if raw == nil {
			continue
		}
		if r, err := format.ParseUnverified(raw); err == nil {
			e.Born = r.Born
			break
		}
	}
	return e
}

func entryOf(s *source, seq uint64, d format.Draft) *Entry {
	return &Entry{Seq: seq, Type: d.Type, Key: d.Key, Time: time.Unix(0, d.Time), s: s, next: d.Next, prev: d.Prev}
}

// Size is about how much memory the entry takes, in bytes, not counting an object that
// Previous has decoded.
func (e *Entry) Size() int {
	n := len(e.next) + len(e.prev) + len(e.Key) + 200
	if e.obj != nil {
		n += decodedSize(len(e.next))
	}
	return n
}

// Object is the object after the change. For a delete it is the final state, or a
// cache.DeletedFinalStateUnknown with the last known state. That state is nil if it
// cannot be read either. A delete returns an object even with an error. See also
// Feed.TransformAgain.
func (e *Entry) Object() (any, error) {
	switch {
	case e.obj != nil:
		return e.obj, nil
	case e.next != nil:
		obj, err := e.decode(e.next, e.Type == cache.Deleted || e.Outdated())
		if err == nil || e.Type != cache.Deleted {
			return obj, err
		}
		prev, prevErr := e.Previous()
		return cache.DeletedFinalStateUnknown{Key: e.Key, Obj: prev}, errors.Join(err, prevErr)
	}
	prev, err := e.Previous()
	return cache.DeletedFinalStateUnknown{Key: e.Key, Obj: prev}, err
}

// Previous is the object before the change, nil for an add. An entry from the commit has
// the very object, if that was in memory. Otherwise, and for an entry read from the file,
// the first call decodes it from the record before the change. The entry keeps that record
// as a diff from the one after the change.
func (e *Entry) Previous() (any, error) {
	e.once.Do(func() {
		if e.prevObj == nil && e.prev != nil {
			e.prevObj, e.prevErr = e.decode(e.prev.Apply(e.next), true)
		}
	})
	return e.prevObj, e.prevErr
}

// decodeRaw decodes a record that was copied out of the file.
func (rd *reader) decodeRaw(key string, raw []byte) (any, error) {
	_, r, err := rd.s.coder.owner.ParseRecord(index.AppendKey(nil, key), raw)
	if err != nil {
		return nil, err
	}
	return rd.decode(key, r, false)
}

// ReadJournal reads committed entries from seq on, in order, up to the end of a block. If
// there are none yet, it returns none. It skips entries that were trimmed.
func (s Feed) ReadJournal(seq uint64) ([]*Entry, error) { return s.reader.readJournal(seq) }

// SkipJournal returns where ReadJournal can go on after the damaged block with seq.
// That is the seq of the next block, or one above the last.
func (s Feed) SkipJournal(seq uint64) (next uint64, err error) {
	err = s.view(func(m *sourceMeta, src sourceTx) error {
		next = m.Seq + 1
		if j := src.Journal(); j != nil {
			if k, _ := j.Cursor().Seek(layout.U64(seq + 1)); k != nil {
				next = min(next, binary.BigEndian.Uint64(k))
			}
		}
		return nil
	})
	return next, err
}

func (rd *reader) readJournal(seq uint64) ([]*Entry, error) {
	var drafts []format.Draft
	var first uint64
	err := rd.s.view(func(m *sourceMeta, src sourceTx) (err error) {
		j := src.Journal()
		if j == nil || seq > m.Seq {
			return nil
		}
		var b []byte
		if first, b, err = src.seekBlock(j, seq); err != nil || b == nil || first > m.Seq {
			return err
		}
		drafts, err = src.unpackBlock(first, b)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("boltstore: journal of %s: %w", rd.s.name, err)
	}
	var entries []*Entry
	for i, d := range drafts {
		if n := first + uint64(i); n >= seq {
			entries = append(entries, newEntry(rd.s, n, d))
		}
	}
	return entries, nil
}

// History yields the journal's entries of one key, oldest first; "" means all keys. It
// reads each block in its own transaction. Entries that are trimmed meanwhile are left
// out. An error ends the iteration.
func (s *Store) History(key string) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		for next := uint64(1); ; {
			entries, err := s.reader.readJournal(next)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(entries) == 0 {
				return
			}
			for _, e := range entries {
				if (key == "" || e.Key == key) && !yield(e, nil) {
					return
				}
			}
			next = entries[len(entries)-1].Seq + 1
		}
	}
}
