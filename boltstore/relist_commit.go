package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/internal/listing"
)

// spillBytes bounds the unpacked records of a transaction of a relist that has more than
// one. bbolt has three to four times as much in memory until it ends.
const spillBytes = 1 << 20

// flush commits the differences at hand, in as many transactions as their size needs. The
// last one notes that a first list has come to at, if that is not nil.
func (r *Relist) flush(at *listing.Progress) error {
	for len(r.items) > 0 || at != nil {
		n := r.fit()
		l := &listBatch{r: r, unstored: r.nameless}
		if n == len(r.items) {
			l.at, at = at, nil
		}
		if err := r.s.db.commit.commit(r.work(n, l)); err != nil {
			return fmt.Errorf("boltstore: relist of %s: %w", r.s.name, err)
		}
		r.items, r.nameless, r.spilled = r.items[n:], 0, true
	}
	r.items, r.bytes = nil, 0
	return nil
}

// fit is how many of the items a transaction has room for.
func (r *Relist) fit() (n int) {
	for room := min(r.s.db.opts.maxCommitBytes, spillBytes); room > 0 && n < len(r.items); n++ {
		room -= r.items[n].unpacked()
	}
	return n
}

// work is a batch of the first n items.
func (r *Relist) work(n int, l *listBatch) *work {
	b := &Batch{list: l}
	for _, it := range r.items[:n] {
		b.Changes = append(b.Changes, it.c)
	}
	return &work{s: r.s.source, b: b}
}

// sweep deletes the objects that no page has shown, as of the list's version. A first list
// has stored nothing else, or goes on with an interrupted one and leaves them to the watch.
func (r *Relist) sweep(resourceVersion string) error {
	if r.first {
		return nil
	}
	for !r.tailed {
		items, next, err := r.scan(r.swept)
		if err != nil {
			return err
		}
		for i, it := range items {
			if items[i].c = r.unseen(it, resourceVersion); items[i].c.typ == cache.Deleted {
				r.Deleted++
			}
		}
		r.swept, r.tailed = next, next == nil
		if err := r.take(items, nil); err != nil {
			return err
		}
	}
	return r.sweepNotes(resourceVersion)
}

// scan looks at up to 1,000 keys from the place from on; nil is the start. It returns those
// that no page has shown, and the place of the next key, nil at the end.
func (r *Relist) scan(from []byte) (items []listedItem, next []byte, err error) {
	const most = 1000
	err = r.s.db.h.view(func(tx *bolt.Tx) error {
		items, next = nil, nil
		c, err := r.current(tx)
		if err != nil || c.Items == nil {
			return err
		}
		n := 0
		next, err = layout.Page(c.Items.Cursor(), from, func(k []byte, v layout.Raw) bool {
			if n == most {
				return false
			}
			n++
			if r.hasSeen(k) {
				return true
			}
			key, is, err := r.s.owner.ParseRecord(k, v.Open())
			if err != nil { // the relist knows, or ends: recount removes it
				r.meet(err)
				return true
			}
			items = append(items, listedItem{k: bytes.Clone(k), key: key, uid: is.UID, size: len(v.Stored)})
			return true
		})
		return err
	})
	return items, next, err
}

// Commit ends the relist, as of resourceVersion, which the server confirmed at the given
// time. It returns the entries for handlers, in order. If not all were committed at once,
// Commit returns nil: the entries are only in the journal. After an error other than
// ErrAbandoned, Commit may be called again.
func (r *Relist) Commit(resourceVersion string, confirmed time.Time) ([]*Entry, error) {
	if err := r.commit(resourceVersion, confirmed); err != nil {
		return nil, fmt.Errorf("boltstore: relist of %s: %w", r.s.name, err)
	}
	r.done = true
	r.written()
	return r.last.entries, nil
}

func (r *Relist) commit(resourceVersion string, confirmed time.Time) error {
	if r.last == nil {
		if err := r.sweep(resourceVersion); err != nil {
			return err
		}
		if err := r.allThere(); err != nil {
			return err
		}
		end := &listEnd{resourceVersion: resourceVersion, confirmed: confirmed}
		r.last = r.work(len(r.items), &listBatch{r: r, unstored: r.nameless, end: end})
	}
	return r.s.db.commit.commit(r.last)
}

// allThere returns ErrAbandoned if there is damage that the relist does not know of.
func (r *Relist) allThere() error {
	if r.first || r.hurt || r.met.Load() != nil {
		return r.metDamage()
	}
	err := r.s.view(func(m *sourceMeta, t sourceTx) error {
		n, err := t.contents().Items.Count()
		if err == nil && n != m.Items.Count {
			err = fmt.Errorf("%w: the file has %d records, not %d", ErrDamaged, n, m.Items.Count)
		}
		if errors.Is(err, ErrDamaged) {
			r.meet(err)
		}
		return err
	})
	if err == nil || r.met.Load() != nil {
		err = r.metDamage()
	}
	return err
}

// meet notes damage in a record that was compared. The next relist knows of it: it writes
// everything again, and finds out what is lost.
func (r *Relist) meet(err error) {
	r.s.damaged(err)
	if !r.hurt {
		r.met.CompareAndSwap(nil, &err)
	}
}

// metDamage returns ErrAbandoned after meet.
func (r *Relist) metDamage() error {
	if err := r.met.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrAbandoned, *err)
	}
	return nil
}

// Journaled is the seq of the last change that the relist has journaled and that readers
// see, 0 before there is one.
func (r *Relist) Journaled() uint64 {
	if !r.began || r.first || r.all && r.s.form.hidden() {
		return 0
	}
	return r.s.metaNow().Seq
}

// Abort ends the relist. What it has committed stays, and is repeated by the next one, or
// taken up. After Commit, Abort does nothing.
func (r *Relist) Abort() { r.done = true }

// forgetDamage is for records that are all new: from the server, mended or none.
func (s *source) forgetDamage() {
	s.mu.Lock()
	if s.broken != nil {
		s.broken, s.brokenCh = nil, make(chan struct{})
	}
	s.tellChanged()
	s.mu.Unlock()
	s.memory.settle()
}
