package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// Moment is a committed state of a source, as the server showed it. The journal leads from one moment to the next.
type Moment struct {
	// Series and Seq are the place in the journal. A restored server, another cluster,
	// another Go type and lost contents begin a new series.
	Series int64
	Seq    uint64
	// Version is the state's version, "" if it is between those of two changes.
	Version string
}

var (
	// ErrTrimmed: the journal no longer leads to or from a moment.
	ErrTrimmed = errors.New("the journal no longer has it")
	// ErrNotWhole: the file has no whole state of the source, which has not been listed
	// yet, is outdated, or has lost records by damage. A list will change that.
	ErrNotWhole = errors.New("the file does not have all of it")
)

// moment is the newest moment, which a list that has not ended does not move.
func (m *sourceMeta) moment() Moment {
	seq := m.Seq
	if list := m.openMark(); list != nil {
		seq = list.From
	}
	return Moment{m.Marked, seq, m.ResourceVersion}
}

// at runs fn on the newest state. A source that lacks records has none.
func (rd *reader) at(fn func(m *sourceMeta, src sourceTx, g contentsTx) error) error {
	err := rd.read(func(m *sourceMeta, src sourceTx, g contentsTx) error {
		switch {
		case !m.listed():
			return fmt.Errorf("%w: it has not been listed yet", ErrNotWhole)
		case m.Degraded != "":
			return fmt.Errorf("%w: %s", ErrNotWhole, m.Degraded)
		case g.Items == nil:
			return fmt.Errorf("%w: it is outdated", ErrNotWhole)
		}
		return fn(m, src, g)
	})
	return rd.s.health.explained(err)
}

// Moment returns the newest moment whose version is not newer than version. If version is
// "" or newer than all, that is the newest moment of all, whose version is newest. The
// error is ErrTrimmed for a version that the journal no longer has, and for one from before
// the server was restored, which it has not reached again.
func (s *Store) Moment(version string) (at Moment, newest string, err error) {
	return s.reader.momentAt(version, false)
}

// MomentFrom is Moment for a reader that has the state of version and goes on from it. If
// several moments have that version, it returns the first, so that no change is missed.
func (s *Store) MomentFrom(version string) (at Moment, newest string, err error) {
	return s.reader.momentAt(version, true)
}

func (rd *reader) momentAt(version string, first bool) (at Moment, newest string, err error) {
	err = rd.at(func(m *sourceMeta, src sourceTx, _ contentsTx) error {
		at, newest = m.moment(), m.ResourceVersion
		switch {
		case version == "":
			return nil
		case m.isFormer(version):
			return ErrTrimmed
		}
		seq, ok, err := src.seqAt(m, version, first)
		switch {
		case err != nil:
			return err
		case !ok || !m.reaches(m.Marked, seq):
			return ErrTrimmed
		case seq != at.Seq:
			at.Seq, at.Version = seq, ""
		}
		return nil
	})
	return at, newest, err
}

// GetAt returns the object at key in the newest moment, nil if there is none.
func (s *Store) GetAt(key string) (obj any, at Moment, err error) {
	var raws []layout.Raw
	err = s.reader.at(func(m *sourceMeta, src sourceTx, g contentsTx) error {
		raws, at = nil, m.moment()
		k := index.AppendKey(nil, key)
		now := g.Items.Get(k)
		if before, err := src.undone(at.Seq, m.Seq, key); err != nil {
			return err
		} else if was, changed := before[string(k)]; changed {
			now = was
		}
		if now != nil {
			raws = append(raws, layout.Raw{Key: k, Stored: bytes.Clone(now)})
		}
		return nil
	})
	if err != nil || raws == nil {
		return nil, at, err
	}
	_, objs, err := s.reader.decodeAll(raws, true)
	return objs[0], at, s.health.explained(err)
}

// PageAt returns objects of a moment whose keys begin with prefix, in the order of the
// file, which is that of their item keys. It begins at the item key from, nil for the first
// one, and ends after n objects, or about n times 16 KiB in the file and at most 1 MiB. next
// is where the next page begins, nil after the last one. The error is ErrTrimmed if the
// journal no longer leads back to the moment.
func (s *Store) PageAt(at Moment, prefix string, from []byte, n int) (
	keys []string, objs []any, next []byte, err error,
) {
	raws, next, err := s.reader.rawsAt(at, prefix, from, n)
	if err != nil {
		return nil, nil, nil, err
	}
	keys, objs, err = s.reader.decodeAll(raws, false)
	return keys, objs, next, s.health.explained(err)
}

// rawsAt returns copies of the records of PageAt.
func (rd *reader) rawsAt(at Moment, prefix string, from []byte, n int) (raws []layout.Raw, next []byte, err error) {
	size, most := 0, min(n*(16<<10), 4*pageBytes)
	err = rd.at(func(m *sourceMeta, src sourceTx, g contentsTx) error {
		raws, size, next = nil, 0, nil
		if !m.reaches(at.Series, at.Seq) {
			return ErrTrimmed
		}
		before, err := src.undone(at.Seq, m.Seq, prefix)
		if err != nil {
			return err
		}
		return g.eachAt(before, prefix, from, func(item []byte, record []byte) bool {
			if len(raws) >= max(n, 1) || len(raws) > 0 && size >= most {
				next = bytes.Clone(item)
				return false
			}
			raws = append(raws, layout.Raw{Key: bytes.Clone(item), Stored: bytes.Clone(record)})
			size += len(record)
			return true
		})
	})
	return raws, next, err
}

// overlayBytes bounds the part of the journal that is kept in memory to go back to a
// moment.
const overlayBytes = 64 << 20

// undone returns, by item key, the records as of seq after, of the keys with the prefix
// that entries up to last have changed. nil means that there was none.
func (t sourceTx) undone(after, last uint64, prefix string) (before map[string][]byte, err error) {
	size := 0
	before = map[string][]byte{}
	for seq := after + 1; seq <= last; {
		first, drafts, err := t.blockAt(seq, t.unpackBlock)
		if err != nil {
			return nil, err
		}
		if drafts == nil {
			return nil, ErrTrimmed
		}
		for _, d := range drafts[seq-first:] {
			item := string(index.AppendKey(nil, d.Key))
			if _, ok := before[item]; ok || !strings.HasPrefix(d.Key, prefix) {
				continue
			}
			raw := d.Previous()
			if size += len(raw) + len(d.Key); size > overlayBytes {
				return nil, fmt.Errorf("%w: too much has changed since", ErrTrimmed)
			}
			before[item] = raw
		}
		seq = first + uint64(len(drafts))
	}
	return before, nil
}

// eachAt is each with the records of a moment: those in before take the place of the
// present ones.
func (g contentsTx) eachAt(
	before map[string][]byte, prefix string, from []byte, fn func(item, record []byte) bool,
) error {
	changed := slices.Sorted(maps.Keys(before))
	at, _ := slices.BinarySearch(changed, string(from))
	changed = changed[at:]
	// upTo calls fn with the changed ones before an item key, nil for all.
	upTo := func(item []byte) bool {
		for len(changed) > 0 && (item == nil || changed[0] < string(item)) {
			was := changed[0]
			changed = changed[1:]
			if before[was] != nil && !fn([]byte(was), before[was]) {
				return false
			}
		}
		return true
	}
	more, err := g.each(prefix, from, func(item []byte, r layout.Raw) bool {
		if !upTo(item) {
			return false
		}
		if len(changed) > 0 && changed[0] == string(item) {
			return upTo(append(item, 0))
		}
		return fn(item, r.Open())
	})
	if more && err == nil {
		upTo(nil)
	}
	return err
}

// each calls fn with the item keys from a place on whose keys begin with prefix, in the
// order of the file, and with their records, until fn returns false. more says whether fn
// never returned false.
func (g contentsTx) each(prefix string, from []byte, fn func(item []byte, r layout.Raw) bool) (more bool, err error) {
	if first := index.From(prefix); bytes.Compare(from, first) < 0 {
		from = first
	}
	c := g.Items.Cursor()
	var last []byte
	for at, r := c.Seek(from); at != nil; {
		if last != nil && bytes.Compare(at, last) <= 0 {
			return false, layout.OutOfOrder(at)
		}
		last = append(last[:0], at...)
		key, err := keyOf(r)
		switch {
		case err != nil:
			return false, err
		case !strings.HasPrefix(key, prefix) && bytes.Compare(at, index.Hashed) < 0:
			at, r = c.Seek(index.Hashed) // of the other keys only long ones may have the prefix
			continue
		case strings.HasPrefix(key, prefix) && !fn(last, r):
			return false, nil
		}
		at, r = c.Next()
	}
	return true, nil
}

// EntriesAt are changes that follow a moment.
type EntriesAt struct {
	Entries []*Entry
	// Next is the moment after them.
	Next Moment
	// Listed says that a list has brought them, whose version is ListVersion. They are
	// not in the order of versions, and deletes have none. After the last of them Next
	// has the list's version.
	Listed      bool
	ListVersion string
}

// afterBytes bounds the records that EntriesAfter returns, unless one is larger.
const afterBytes = 128 << 10

// EntriesAfter returns the next changes after a moment, at most about 128 KiB. If there
// are none, Next is the newest moment. The error is ErrTrimmed if the journal does not
// have the entry that follows.
func (s *Store) EntriesAfter(at Moment) (e EntriesAt, err error) {
	var first uint64
	var drafts []format.Draft
	err = s.reader.at(func(m *sourceMeta, src sourceTx, _ contentsTx) error {
		e, drafts = EntriesAt{Next: m.moment()}, nil
		if !m.reaches(at.Series, at.Seq) {
			return ErrTrimmed
		}
		top := m.moment().Seq
		if at.Seq >= top {
			return nil
		}
		first, drafts, err = src.blockAt(at.Seq+1, s.db.parsed.drafts(src))
		if err != nil {
			return err
		}
		if drafts == nil {
			return ErrTrimmed
		}
		l, end := m.listAfter(at.Seq)
		last := min(end, first+uint64(len(drafts))-1, top)
		drafts, first = drafts[at.Seq+1-first:last-first+1], at.Seq+1
		drafts = someOf(drafts)
		last = at.Seq + uint64(len(drafts))
		if l != nil {
			e.Listed, e.ListVersion = true, l.Version
		}
		if last < top {
			e.Next.Seq, e.Next.Version = last, ""
			if e.Listed && last == l.Seq {
				e.Next.Version = l.Version
			}
		} else if e.Listed {
			e.Next.Version = l.Version
		}
		return nil
	})
	if err != nil {
		return EntriesAt{}, err
	}
	for i, d := range drafts {
		e.Entries = append(e.Entries, newEntry(s.source, first+uint64(i), d))
	}
	return e, nil
}

// someOf returns the first drafts, up to afterBytes. They are copies, since a draft keeps
// its whole block in memory.
func someOf(drafts []format.Draft) (some []format.Draft) {
	size := 0
	for i, d := range drafts {
		if size += len(d.Next) + len(d.Prev); i > 0 && size > afterBytes {
			break
		}
		d.Next, d.Prev = bytes.Clone(d.Next), bytes.Clone(d.Prev)
		some = append(some, d)
	}
	return some
}

// Version is the resourceVersion that the change has given the object, "" if it is not
// known: a delete whose final state is unknown has none.
func (e *Entry) Version() string { return versionOf(e.next) }
