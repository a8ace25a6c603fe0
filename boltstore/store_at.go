package boltstore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
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

// moment is the newest moment.
func (m *sourceMeta) moment() Moment { return Moment{m.Marked, m.Seq, m.ResourceVersion} }

// at runs fn on the newest state. A source that lacks records has none.
func (s *Store) at(fn func(m *sourceMeta, src sourceTx, g genTx) error) error {
	err := s.read(func(m *sourceMeta, src sourceTx, g genTx) error {
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
	return s.explained(err)
}

// Moment returns the newest moment whose version is not newer than version. If version is
// "" or newer than all, that is the newest moment of all, whose version is newest. The
// error is ErrTrimmed for a version that the journal no longer has, and for one from before
// the server was restored, which it has not reached again.
func (s *Store) Moment(version string) (at Moment, newest string, err error) {
	return s.momentAt(version, false)
}

// MomentFrom is Moment for a reader that has the state of version and goes on from it. If
// several moments have that version, it returns the first, so that no change is missed.
func (s *Store) MomentFrom(version string) (at Moment, newest string, err error) {
	return s.momentAt(version, true)
}

func (s *Store) momentAt(version string, first bool) (at Moment, newest string, err error) {
	err = s.at(func(m *sourceMeta, src sourceTx, _ genTx) error {
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
		case seq != m.Seq:
			at.Seq, at.Version = seq, ""
		}
		return nil
	})
	return at, newest, err
}

// GetAt returns the object at key in the newest moment, nil if there is none.
func (s *Store) GetAt(key string) (obj any, at Moment, err error) {
	var raws []layout.Raw
	err = s.at(func(m *sourceMeta, _ sourceTx, g genTx) error {
		raws, at = nil, m.moment()
		k := index.AppendKey(nil, key)
		if r, there := g.Items.Find(k); there {
			raws = append(raws, layout.Raw{Key: k, Stored: bytes.Clone(r.Open())})
		}
		return nil
	})
	if err != nil || raws == nil {
		return nil, at, err
	}
	_, objs, err := s.reading().decodeAll(raws, true)
	if s.note(err) != nil {
		return nil, at, fmt.Errorf("boltstore: %s: %w", s.source, err)
	}
	return objs[0], at, nil
}

// PageAt returns objects of a moment whose keys begin with prefix, in the order of the
// keys. It begins at the key from, and ends after n objects, or about n times 16 KiB in the
// file and at most 1 MiB. more says whether another one follows. The error is ErrTrimmed if
// the journal no longer leads back to the moment.
//
// A source with keys of more than 512 bytes is not in the order of the keys, so each page
// reads all keys.
func (s *Store) PageAt(at Moment, prefix, from string, n int) (keys []string, objs []any, more bool, err error) {
	raws, more, err := s.rawsAt(at, prefix, from, n)
	if err != nil {
		return nil, nil, false, err
	}
	keys, objs, err = s.reading().decodeAll(raws, false)
	return keys, objs, more, s.explained(err)
}

// rawsAt returns copies of the records of PageAt.
func (s *Store) rawsAt(at Moment, prefix, from string, n int) (raws []layout.Raw, more bool, err error) {
	size, most := 0, min(n*(16<<10), 4*pageBytes)
	begin := func() { raws, size, more = nil, 0, false }
	err = s.walkAt(at, prefix, from, begin, func(key string, raw []byte) bool {
		if more = len(raws) >= max(n, 1) || len(raws) > 0 && size >= most; more {
			return false
		}
		raws = append(raws, layout.Raw{Key: index.AppendKey(nil, key), Stored: bytes.Clone(raw)})
		size += len(raw)
		return true
	})
	return raws, more, err
}

// CountAt counts the objects that PageAt would return, at most n.
func (s *Store) CountAt(at Moment, prefix, from string, n int) (count int, err error) {
	err = s.walkAt(at, prefix, from, func() { count = 0 }, func(string, []byte) bool {
		count++
		return count < n
	})
	return count, err
}

// overlayBytes bounds the part of the journal that is kept in memory to go back to a
// moment.
const overlayBytes = 64 << 20

// walkAt calls fn with the records of a moment, in the order of the keys, until fn
// returns false. begin is called first, and again if the walk begins again.
func (s *Store) walkAt(at Moment, prefix, from string, begin func(), fn func(key string, raw []byte) bool) error {
	from = max(from, prefix)
	return s.at(func(m *sourceMeta, src sourceTx, g genTx) error {
		begin()
		if !m.reaches(at.Series, at.Seq) {
			return ErrTrimmed
		}
		before, err := src.undone(at.Seq, m.Seq, func(key string) bool { return key >= from && strings.HasPrefix(key, prefix) })
		if err != nil {
			return err
		}
		changed := make([]string, 0, len(before))
		for key := range before {
			changed = append(changed, key)
		}
		slices.Sort(changed)
		give := func(key string, raw func() []byte) bool {
			for len(changed) > 0 && (key == "" || changed[0] <= key) {
				k := changed[0]
				changed = changed[1:]
				if b := before[k]; b != nil && !fn(k, b) {
					return false
				}
				if k == key {
					return true
				}
			}
			return key == "" || fn(key, raw())
		}
		more, err := g.eachFrom(prefix, from, give)
		if more && err == nil {
			give("", nil) // the rest of the objects at that moment
		}
		return err
	})
}

// undone returns, for the keys that entries up to last have changed, the records as of
// seq after. nil means that there was none.
func (t sourceTx) undone(after, last uint64, want func(key string) bool) (before map[string][]byte, err error) {
	size := 0
	for seq := after + 1; seq <= last; {
		first, drafts, err := t.blockAt(seq, t.unpackBlock)
		if err != nil {
			return nil, err
		}
		if drafts == nil {
			return nil, ErrTrimmed
		}
		if before == nil {
			before = map[string][]byte{}
		}
		for _, d := range drafts[seq-first:] {
			if _, ok := before[d.Key]; ok || !want(d.Key) {
				continue
			}
			raw := d.Previous()
			if size += len(raw) + len(d.Key); size > overlayBytes {
				return nil, fmt.Errorf("%w: too much has changed since", ErrTrimmed)
			}
			before[d.Key] = raw
		}
		seq = first + uint64(len(drafts))
	}
	return before, nil
}

// eachFrom calls fn with the keys of the objects that the server showed last, in order,
// until fn returns false. It says whether fn wants more. raw returns the record within
// the transaction.
func (g genTx) eachFrom(prefix, from string, fn func(key string, raw func() []byte) bool) (more bool, err error) {
	if !g.hasHashedKeys() {
		more = true
		err := g.each(index.From(from), func(key string, r layout.Raw) bool {
			switch {
			case key < from:
				return true
			case !strings.HasPrefix(key, prefix):
				return false
			}
			more = r.In == nil || fn(key, r.Open)
			return more
		})
		return more, err
	}
	type found struct {
		key string
		r   layout.Raw
	}
	var all []found
	err = g.each(nil, func(key string, r layout.Raw) bool {
		if r.In != nil && key >= from && strings.HasPrefix(key, prefix) {
			all = append(all, found{key, r})
		}
		return true
	})
	if err != nil {
		return false, err
	}
	slices.SortFunc(all, func(a, b found) int { return cmp.Compare(a.key, b.key) })
	for _, f := range all {
		if !fn(f.key, f.r.Open) {
			return false, nil
		}
	}
	return true, nil
}

// hasHashedKeys says whether some keys are so long that the file has their hashes.
func (g genTx) hasHashedKeys() bool {
	at, _ := g.Items.Cursor().Seek(index.Hashed)
	return at != nil
}

// each calls fn with the keys from an item key on, in the order of item keys, and with their
// records, until fn returns false.
func (g genTx) each(from []byte, fn func(key string, r layout.Raw) bool) error {
	c := g.Items.Cursor()
	var last []byte
	for at, r := c.Seek(from); at != nil; at, r = c.Next() {
		if last != nil && bytes.Compare(at, last) <= 0 {
			return layout.OutOfOrder(at)
		}
		last = append(last[:0], at...)
		key, err := keyOf(r)
		if err != nil || !fn(key, r) {
			return err
		}
	}
	return nil
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
	err = s.at(func(m *sourceMeta, src sourceTx, _ genTx) error {
		e, drafts = EntriesAt{Next: m.moment()}, nil
		if !m.reaches(at.Series, at.Seq) {
			return ErrTrimmed
		}
		if at.Seq == m.Seq {
			return nil
		}
		first, drafts, err = src.blockAt(at.Seq+1, s.db.sharedDrafts(src))
		if err != nil {
			return err
		}
		if drafts == nil {
			return ErrTrimmed
		}
		l, end := m.listAfter(at.Seq)
		last := min(end, first+uint64(len(drafts))-1, m.Seq)
		drafts, first = drafts[at.Seq+1-first:last-first+1], at.Seq+1
		drafts = someOf(drafts)
		last = at.Seq + uint64(len(drafts))
		if l != nil {
			e.Listed, e.ListVersion = true, l.Version
		}
		if last < m.Seq {
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
		e.Entries = append(e.Entries, newEntry(s, first+uint64(i), d))
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
