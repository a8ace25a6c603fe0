package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/index"
)

// A note names an object that the resume point has passed although the object could not be
// stored. The transaction that passes the object writes the note. The transaction that
// stores the object or finds it gone removes the note.

// note is the note of one key.
type note struct {
	Key  string `msgpack:"key"`
	Time int64  `msgpack:"time"` // unix ns, when it was last written
	Why  string `msgpack:"why"`  // reason of the last failure, in short
	// RV: the server has another state of the object than the file, at that version or
	// later.
	RV string `msgpack:"rv,omitempty"`
	// Record is the file's earlier record, if that must not be served any more.
	Record []byte `msgpack:"record,omitempty"`

	damage error // why the note cannot be read
}

// noted is meta's summary of the notes.
type noted struct {
	Unstored uint64 `msgpack:"unstored"` // keys
	Nameless uint64 `msgpack:"nameless"` // unstored objects whose key is not known
	Why      string `msgpack:"why"`      // reason of the last unstored object
}

func (d *noted) add(n *note, by int) {
	if n == nil {
		return
	}
	d.Unstored = uint64(max(int64(d.Unstored)+int64(by), 0))
	if by > 0 {
		d.Why = n.Why
	}
	if d.unstored() == 0 {
		d.Why = ""
	}
}

func (d *noted) unstored() uint64 { return d.Unstored + d.Nameless }

// IsZero has msgpack leave the summary out of a meta without notes.
func (d noted) IsZero() bool { return d == noted{} }

func (d *noted) none() bool { return d.Unstored == 0 }

// maxWhy is how many bytes of a reason are kept.
const maxWhy = 200

// short is the reason of a failure, without the object, in at most about maxWhy bytes.
func short(err error) string {
	var key cache.KeyError
	if errors.As(err, &key) { // its text contains the whole object
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

// notes are a source's notes, by item key.
type notes struct{ layout.Contents }

// get returns the note at an item key, nil if there is none. A damaged note counts as
// that of an unstored object: it is always right to read an object again.
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
		return &note{Key: key, Why: err.Error(), damage: err}
	}
	return n
}

func parseNote(b []byte) (*note, error) {
	n := &note{}
	if err := format.Decode(b, n); err != nil {
		return nil, err
	}
	return n, nil
}

// put stores n in place of old and updates the counts. nil stands for no note.
func (x notes) put(m *sourceMeta, k []byte, n, old *note) error {
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

// page returns up to most notes from the given place on, and the place of the next one.
// nil is the start and the end. Damaged notes are left out; damaged is called with the
// error.
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

// UnstoredObjects counts objects that could not be transformed, keyed or encoded as the
// server showed them, in this life or an earlier one. They must be read again.
func (s Feed) UnstoredObjects() uint64 {
	return s.metaNow().Noted.unstored()
}

// mayNote says whether there may be notes. A damaged source's counts mean nothing.
func (s *source) mayNote() bool { return !s.metaNow().Noted.none() || s.Err() != nil }

// unstored says whether the object at an item key could not be stored.
func (x notes) unstored(k []byte) bool { return x.get(k) != nil }

// notes deletes the noted objects without a record that no page has shown. They are
// gone.
func (sw *sweeper) notes(resourceVersion string) error {
	for !sw.noted {
		var items []listedItem
		var next []byte
		err := sw.r.s.db.h.view(func(tx *bolt.Tx) error {
			items = nil
			c, err := sw.r.current(tx)
			if err != nil {
				return err
			}
			all, at, err := c.notes.page(sw.noteAt, 1000, sw.r.s.health.meet)
			next = at
			for _, n := range all {
				it := listedItem{k: index.AppendKey(nil, n.Key), key: n.Key}
				if n.Record != nil {
					if _, is, err := sw.r.s.coder.owner.ParseRecord(it.k, n.Record); err == nil {
						it.uid = is.UID
					}
				}
				it.c = sw.unseen(it, resourceVersion)
				if c.Items.Get(it.k) == nil && !sw.r.seen.has(it.k) {
					items = append(items, it)
				}
			}
			return err
		})
		if err != nil {
			return err
		}
		sw.noteAt, sw.noted = next, next == nil
		if err := sw.r.found.take(items, nil); err != nil {
			return err
		}
	}
	return nil
}

// notes verifies the notes.
func (v *verifier) notes(g contentsTx) {
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
		if n.Record != nil {
			if _, _, err := v.m.owner().ParseRecord(k, n.Record); err != nil {
				v.problem("the note of %q: %v", n.Key, err)
			}
		}
	})
	if is.Unstored != v.m.Noted.Unstored {
		v.problem("%d objects are noted as unstored; meta counts %d", is.Unstored, v.m.Noted.Unstored)
	}
}

// notes copies the notes.
func (c *copier) notes(ref pages.Bucket) {
	sealed := layout.SealNotes(c.seals.from, c.id)
	c.note(c.from.Each(ref, func(k, v []byte, _ *pages.Bucket) {
		n, err := parseNote(sealed.Open(k, v))
		if err != nil {
			c.note(fmt.Errorf("a note: %w", err))
			return
		}
		c.do(len(v), func(_ sourceTx, a *applier) error {
			return a.in.notes.put(a.m, index.AppendKey(nil, n.Key), n, nil)
		})
	}))
}
