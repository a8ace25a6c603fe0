package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/kubewake/kubewake/boltstore/internal/layout"

	"github.com/kubewake/kubewake/boltstore/internal/format"

	"github.com/kubewake/kubewake/boltstore/internal/pages"

	"github.com/vmihailenco/msgpack/v5"
	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/index"
)

// Notes say which objects of a generation the resume point has passed although
// something of them could not be stored. They are written in the transaction
// that passes them, and removed in the one that stores the object, finds it
// gone, or computes what was missing.

// note is what the file says of one key.
type note struct {
	Key  string `msgpack:"key"`
	Time int64  `msgpack:"time"` // unix ns, when it was last written
	Why  string `msgpack:"why"`  // of the last failure, in short
	// Unstored: the server has the object in another state than the file, as of
	// the version RV, or of a later one.
	Unstored bool   `msgpack:"unstored,omitempty"`
	RV       string `msgpack:"rv,omitempty"`
	// Record is what the file had before, where that must not be served any more.
	Record []byte `msgpack:"record,omitempty"`
	// Indices are those under which the record lists no values, because their
	// functions failed.
	Indices []string `msgpack:"indices,omitempty"`

	damage error // what it said cannot be read
}

// noted is what meta says of a generation's notes.
type noted struct {
	Unstored  uint64 `msgpack:"unstored"`  // keys
	Unindexed uint64 `msgpack:"unindexed"` // keys
	Nameless  uint64 `msgpack:"nameless"`  // objects that could not be stored, and whose key is not known
	Why       string `msgpack:"why"`       // the last one could not be stored
}

func (d *noted) add(n *note, by int) {
	if n == nil {
		return
	}
	if n.Unstored {
		d.Unstored = uint64(max(int64(d.Unstored)+int64(by), 0))
	}
	if len(n.Indices) > 0 {
		d.Unindexed = uint64(max(int64(d.Unindexed)+int64(by), 0))
	}
	if by > 0 && n.Unstored {
		d.Why = n.Why
	}
	if d.unstored() == 0 {
		d.Why = ""
	}
}

func (d *noted) unstored() uint64 { return d.Unstored + d.Nameless }

// IsZero leaves it out of a meta without notes.
func (d noted) IsZero() bool { return d == noted{} }

func (d *noted) none() bool { return d.Unstored == 0 && d.Unindexed == 0 }

// maxWhy is how many bytes of a reason are kept.
const maxWhy = 200

// short is the reason of a failure, without the object that it is of.
func short(err error) string {
	var key cache.KeyError
	if errors.As(err, &key) { // its text has the whole object
		err = fmt.Errorf("the key function failed: %w", key.Err)
	}
	why := err.Error()
	if len(why) > maxWhy {
		why = why[:maxWhy]
		for !utf8.ValidString(why) && len(why) > maxWhy-utf8.UTFMax {
			why = why[:len(why)-1]
		}
		why += "…"
	}
	return strings.ToValidUTF8(why, "?")
}

// notes are those of one generation, by item key.
type notes struct{ layout.Gen }

// get returns the note at an item key, nil if there is none. A damaged one says
// that the object is not stored: to read it again is right whatever it said.
func (x notes) get(k []byte) *note {
	raw := x.Notes().Get(k)
	if raw == nil {
		return nil
	}
	n, err := parseNote(raw)
	if err == nil && !bytes.Equal(index.AppendKey(nil, n.Key), k) {
		err = fmt.Errorf("%w: a note of %q is at another key", ErrDamaged, n.Key)
	}
	if err != nil {
		key, _, _ := index.ParseKey(k)
		return &note{Key: key, Unstored: true, Why: err.Error(), damage: err}
	}
	return n
}

func parseNote(b []byte) (*note, error) {
	data, err := format.CheckSum(b)
	if err != nil {
		return nil, err
	}
	n := &note{}
	if err := msgpack.Unmarshal(data, n); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	return n, nil
}

// put stores n in place of old, each nil for none, and counts.
func (x notes) put(m *sourceMeta, k []byte, n, old *note) error {
	if n != nil && !n.Unstored && len(n.Indices) == 0 {
		n = nil
	}
	m.Noted.add(old, -1)
	m.Noted.add(n, 1)
	b := x.Notes()
	switch {
	case n == nil && (old == nil || b == nil):
		return nil
	case n == nil:
		return b.Delete(k)
	case b == nil:
		var err error
		if b, err = x.CreateNotes(); err != nil {
			return err
		}
	}
	data, err := format.Encode(layout.BucketNotes, n)
	if err != nil {
		return err
	}
	return b.Put(k, data)
}

// page returns up to most notes from the given place on, nil being the start,
// and the place of the next one, nil at the end. Damaged ones are left out, and
// told to damaged.
func (x notes) page(from []byte, most int, damaged func(error)) (all []*note, next []byte, err error) {
	b := x.Notes()
	if b == nil {
		return nil, nil, nil
	}
	seen := 0
	next, err = b.Page(from, func(v []byte) bool {
		if seen == most {
			return false
		}
		seen++
		if n, err := parseNote(v); err != nil {
			damaged(fmt.Errorf("a note: %w", err))
		} else {
			all = append(all, n)
		}
		return true
	})
	return all, next, err
}

// UnstoredObjects is how many objects the server has shown, in this life or an
// earlier one, that are not in the file as they were shown: what could not be
// transformed, keyed or encoded. They have to be read again.
func (s *Store) UnstoredObjects() uint64 {
	return s.metaNow().Noted.unstored()
}

// Noted is an object of which something could not be stored.
type Noted struct {
	Key string `json:"key"`
	// ResourceVersion that could not be stored, "" where only values of Indices
	// are missing.
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	Unstored        bool      `json:"unstored,omitempty"`
	Indices         []string  `json:"indices,omitempty"`
	Reason          string    `json:"reason"`
	Time            time.Time `json:"time"`
}

// Noted returns the first of the objects of which something could not be
// stored, up to most.
func (s *Store) Noted(most int) (all []Noted, err error) {
	err = s.view(func(m *sourceMeta, t sourceTx) error {
		ns, _, err := t.gen(m.Generation).notes.page(nil, most, s.damaged)
		for _, n := range ns {
			all = append(all, Noted{Key: n.Key, ResourceVersion: n.RV, Unstored: n.Unstored, Indices: n.Indices, Reason: n.Why, Time: time.Unix(0, n.Time)})
		}
		return err
	})
	if err != nil {
		err = fmt.Errorf("boltstore: notes of %s: %w", s.source, err)
	}
	return all, err
}

// mayNote says whether there may be notes. The counts of a damaged source mean
// nothing.
func (s *Store) mayNote() bool { return !s.metaNow().Noted.none() || s.Err() != nil }

// unstored says whether the object at an item key could not be stored.
func (x notes) unstored(k []byte) bool {
	n := x.get(k)
	return n != nil && n.Unstored
}

// strayNotes says whether there are notes of which meta knows nothing: a program
// that does not know of them has written meta since.
func (t sourceTx) strayNotes(m *sourceMeta) bool {
	return m.Noted.none() && m.Generation > 0 && t.gen(m.Generation).Notes().Some()
}

// dropStrayNotes forgets them. What they are of is read from the server again, or
// indexed again.
func (t sourceTx) dropStrayNotes(m *sourceMeta) error {
	ns := t.gen(m.Generation).notes
	err := ns.Notes().Each(func(_, b []byte) {
		n, err := parseNote(b)
		if err != nil || n.Unstored {
			m.Noted.Nameless++
			m.Noted.Why = "an older program has forgotten what could not be stored"
		}
		for _, name := range n.indices() {
			if im, ok := m.Indices[name]; ok {
				im.Complete = false
				m.Indices[name] = im
			}
		}
	})
	if err == nil {
		err = ns.Bucket.DeleteBucket(layout.BucketNotes)
	}
	if err != nil {
		return err
	}
	return t.putMeta(m)
}

func (n *note) indices() []string {
	if n == nil {
		return nil
	}
	return n.Indices
}

// noteNameless adds what the pages have shown and cannot be told by a key.
func (r *Relist) noteNameless(m *sourceMeta) {
	if r.nameless > 0 {
		m.Noted.Nameless += r.nameless
		m.Noted.Why = r.unstored
	} else if m.Noted.unstored() == 0 {
		m.Noted.Why = ""
	}
}

// sweepNotes finds the notes of what no page has shown: it is gone.
func (r *Relist) sweepNotes(resourceVersion string) error {
	for !r.noNote || len(r.gone) > 0 {
		if n, err := r.take(r.gone); err != nil {
			r.gone = r.gone[n:]
			return err
		}
		if r.gone = nil; r.noNote {
			return nil
		}
		var items []item
		var next []byte
		err := r.s.db.h.view(func(tx *bolt.Tx) error {
			items = nil
			g, err := r.current(tx)
			if err != nil {
				return err
			}
			all, at, err := g.notes.page(r.noteAt, 1000, r.s.damaged)
			next = at
			for _, n := range all {
				it := item{k: index.AppendKey(nil, n.Key), key: n.Key, size: len(n.Record), c: &Change{typ: cache.Deleted, key: n.Key, rv: resourceVersion}}
				if g.Items.Get(it.k) == nil && g.Own.Get(it.k) == nil && !r.hasSeen(it.k) {
					items = append(items, it)
				}
			}
			return err
		})
		if err != nil {
			return err
		}
		r.gone, r.noteAt, r.noNote = items, next, next == nil
	}
	return nil
}

// notes verifies the notes of a generation.
func (v *verifier) notes(g genTx) {
	is := noted{Nameless: v.m.Noted.Nameless, Why: v.m.Noted.Why}
	_ = g.Notes().Each(func(_, b []byte) {
		n, err := parseNote(b)
		if err != nil {
			v.problem("a note: %v", err)
			return
		}
		is.add(n, 1)
		k := index.AppendKey(nil, n.Key)
		if at := g.notes.get(k); at == nil || at.damage != nil {
			v.problem("the note of %q is not at its key", n.Key)
		}
		if _, there := g.Items.Find(k); !there && len(n.Indices) > 0 {
			v.problem("what index functions failed on is noted of %q, which is not there", n.Key)
		}
		if n.Record != nil {
			if _, _, err := format.ParseRecord(k, n.Record); err != nil {
				v.problem("the note of %q: %v", n.Key, err)
			}
		}
	})
	if v.m.Noted.none() {
		return // of an older program: no claim keeps them
	}
	if is.Unstored != v.m.Noted.Unstored || is.Unindexed != v.m.Noted.Unindexed {
		v.problem("%d objects are noted as not stored and %d as not indexed, not %d and %d", is.Unstored, is.Unindexed, v.m.Noted.Unstored, v.m.Noted.Unindexed)
	}
}

// notes copies those of the generation.
func (c *copier) notes(gen pages.Bucket) {
	ref, err := c.from.Find(gen, layout.BucketNotes)
	if err != nil {
		c.note(err)
		return
	}
	sealed := layout.SealNotes(c.with.from, c.id, c.was.Generation)
	c.note(c.from.Each(ref, func(k, v []byte, _ *pages.Bucket) {
		n, err := parseNote(sealed.Open(k, v))
		if err != nil {
			c.note(fmt.Errorf("a note: %w", err))
			return
		}
		c.do(len(v), func(_ sourceTx, a *applier) error {
			k := index.AppendKey(nil, n.Key)
			if a.to.Items.Get(k) == nil { // the record could not be saved
				n.Indices = nil
			}
			lost := a.to.notes.get(k)
			if lost != nil && !n.Unstored {
				n.Unstored, n.Why = true, lost.Why
			}
			return a.to.notes.put(a.m, k, n, lost)
		})
	}))
}
