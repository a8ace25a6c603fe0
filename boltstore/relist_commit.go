package boltstore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
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
func (d *differences) flush(at *listing.Progress) error {
	for len(d.items) > 0 || at != nil {
		n := d.fit()
		l := &listBatch{r: d.r, unstored: d.r.unstored.nameless}
		if n == len(d.items) {
			l.at, at = at, nil
		}
		if err := d.r.s.db.commit.commit(d.batch(n, l)); err != nil {
			return fmt.Errorf("boltstore: relist of %s: %w", d.r.s.name, err)
		}
		d.items, d.r.unstored.nameless, d.spilled = d.items[n:], 0, true
	}
	d.items, d.bytes = nil, 0
	return nil
}

// fit is how many of the items a transaction has room for.
func (d *differences) fit() (n int) {
	for room := min(d.r.s.db.opts.maxCommitBytes, spillBytes); room > 0 && n < len(d.items); n++ {
		room -= d.items[n].unpacked()
	}
	return n
}

// batch is a batch of the first n items.
func (d *differences) batch(n int, l *listBatch) *work {
	b := &Batch{list: l}
	for _, it := range d.items[:n] {
		b.Changes = append(b.Changes, it.c)
	}
	return &work{s: d.r.s, b: b}
}

// sweeper finds the objects that no page has shown.
type sweeper struct {
	r      *Relist
	at     []byte // place from which Commit still has to look for objects that are gone
	tailed bool   // at has reached the end
	noteAt []byte // place up to which Commit has looked through the notes
	noted  bool   // that is the end
}

// sweep deletes the objects that no page has shown, as of the list's version. A first list
// has stored nothing else, or goes on with an interrupted one and leaves them to the watch.
func (sw *sweeper) sweep(resourceVersion string) error {
	if sw.r.first {
		return nil
	}
	for !sw.tailed {
		items, next, err := sw.scan(sw.at)
		if err != nil {
			return err
		}
		for i, it := range items {
			if items[i].c = sw.unseen(it, resourceVersion); items[i].c.typ == cache.Deleted {
				sw.r.Deleted++
			}
		}
		sw.at, sw.tailed = next, next == nil
		if err := sw.r.found.take(items, nil); err != nil {
			return err
		}
	}
	return sw.notes(resourceVersion)
}

// scan looks at up to 1,000 keys from the place from on; nil is the start. It returns those
// that no page has shown, and the place of the next key, nil at the end.
func (sw *sweeper) scan(from []byte) (items []listedItem, next []byte, err error) {
	const most = 1000
	err = sw.r.s.db.h.view(func(tx *bolt.Tx) error {
		items, next = nil, nil
		c, err := sw.r.current(tx)
		if err != nil || c.Items == nil {
			return err
		}
		n := 0
		next, err = layout.Page(c.Items.Cursor(), from, func(k []byte, v layout.Raw) bool {
			if n == most {
				return false
			}
			n++
			if sw.r.seen.has(k) {
				return true
			}
			key, is, err := sw.r.s.coder.owner.ParseRecord(k, v.Open())
			if err != nil { // the relist knows, or ends: recount removes it
				sw.r.damage.meet(err)
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
	r.written()
	return r.last.entries, nil
}

func (r *Relist) commit(resourceVersion string, confirmed time.Time) error {
	if r.last == nil {
		if err := r.sweeper.sweep(resourceVersion); err != nil {
			return err
		}
		if err := r.damage.allThere(); err != nil {
			return err
		}
		end := &listEnd{resourceVersion: resourceVersion, confirmed: confirmed}
		r.last = r.found.batch(len(r.found.items), &listBatch{r: r, unstored: r.unstored.nameless, end: end})
	}
	return r.s.db.commit.commit(r.last)
}

// knownDamage is what a relist knows of damage to the source.
type knownDamage struct {
	r     *Relist
	known bool                  // the relist began with it
	why   string                // if known
	lost  bool                  // it has removed records, and it is unknown of which objects
	met   atomic.Pointer[error] // since then
}

// allThere returns ErrAbandoned if there is damage that the relist does not know of.
func (dm *knownDamage) allThere() error {
	if dm.r.first || dm.known || dm.met.Load() != nil {
		return dm.err()
	}
	err := dm.r.s.view(func(m *sourceMeta, t sourceTx) error {
		n, err := t.contents().Items.Count()
		if err == nil && n != m.Items.Count {
			err = fmt.Errorf("%w: the file has %d records, not %d", ErrDamaged, n, m.Items.Count)
		}
		if errors.Is(err, ErrDamaged) {
			dm.meet(err)
		}
		return err
	})
	return cmp.Or(dm.err(), err)
}

// meet notes damage in a record that was compared. The next relist knows of it: it writes
// everything again, and finds out what is lost.
func (dm *knownDamage) meet(err error) {
	dm.r.s.health.meet(err)
	if !dm.known {
		dm.met.CompareAndSwap(nil, &err)
	}
}

// err returns ErrAbandoned after meet.
func (dm *knownDamage) err() error {
	if err := dm.met.Load(); err != nil {
		return fmt.Errorf("%w: %w", ErrAbandoned, *err)
	}
	return nil
}

// Journaled is the seq of the last change that the relist has journaled and that readers
// see, 0 before there is one.
func (r *Relist) Journaled() uint64 {
	if !r.found.began || r.first || r.all && r.s.form.hidden() {
		return 0
	}
	return r.s.metaNow().Seq
}

// forget is for records that are all new: from the server, mended or none.
func (hl *health) forget() {
	hl.s.mu.Lock()
	if hl.err != nil {
		hl.err, hl.ch = nil, make(chan struct{})
	}
	hl.s.tellChanged()
	hl.s.mu.Unlock()
	hl.s.memory.settle()
}
