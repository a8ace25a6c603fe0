package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/internal/versions"
)

// sweep deletes the objects that no page has shown, as of the list's version.
func (r *Relist) sweep(resourceVersion string) error {
	for !r.tailed {
		items, next, err := r.scan(r.swept, func(k []byte) bool { return !r.hasSeen(k) })
		if err != nil {
			return err
		}
		for i, it := range items {
			items[i].c = r.unseen(it, resourceVersion)
		}
		n, err := r.take(items)
		for _, it := range items[:n] {
			if it.c.typ == cache.Deleted {
				r.Deleted++
			}
		}
		if err != nil {
			if n < len(items) {
				r.swept = items[n].at
			} else {
				r.swept, r.tailed = next, next == nil
			}
			return err
		}
		r.swept, r.tailed = next, next == nil
	}
	return r.sweepNotes(resourceVersion)
}

// scan looks at up to 1,000 keys of the generation from the place from on; nil is the
// start. It returns those that want accepts, and the place of the next key, nil at the
// end.
func (r *Relist) scan(from []byte, want func(k []byte) bool) (items []listedItem, next []byte, err error) {
	const most = 1000
	err = r.s.db.h.view(func(tx *bolt.Tx) error {
		items, next = nil, nil
		g, err := r.current(tx)
		if err != nil || g.Items == nil {
			return err
		}
		n := 0
		next, err = layout.Page(g.Items.Cursor(), from, func(k []byte, v layout.Raw) bool {
			if n == most {
				return false
			}
			n++
			if want(k) {
				it := listedItem{k: bytes.Clone(k), size: len(v.Stored)}
				key, is, err := r.s.owner.ParseRecord(k, v.Open())
				if err == nil {
					it.key, it.uid = key, is.UID // "" if it is damaged
				} else {
					r.meet(err)
				}
				items = append(items, it)
			}
			return true
		})
		return err
	})
	return items, next, err
}

// Commit makes the list visible, as of resourceVersion, which the server confirmed at the
// given time. It returns the entries for handlers, in order. If the relist was staged,
// Commit returns nil: the entries are only in the journal, above the seq before Commit.
// After an error other than ErrReplaced or ErrAbandoned, Commit may be called again.
func (r *Relist) Commit(resourceVersion string, confirmed time.Time) ([]*Entry, error) {
	err := r.commit(resourceVersion, confirmed)
	if err != nil {
		return nil, fmt.Errorf("boltstore: relist of %s: %w", r.s.source, err)
	}
	r.done = true
	r.written()
	return r.entries, nil
}

func (r *Relist) commit(resourceVersion string, confirmed time.Time) error {
	if r.failed != nil {
		return fmt.Errorf("%w: %w", ErrAbandoned, r.failed)
	}
	if err := r.sweep(resourceVersion); err != nil {
		return err
	}
	if err := r.allThere(); err != nil {
		return err
	}
	r.s.indexLock.Lock() // no index is added before the result is visible
	defer r.s.indexLock.Unlock()
	r.s.addLock.Lock()
	defer r.s.addLock.Unlock()
	if err := r.index(); err != nil {
		return err
	}
	var m *sourceMeta
	write := func(tx *bolt.Tx) error {
		src, err := r.source(tx)
		if err != nil {
			return err
		}
		if r.landed {
			m = r.s.metaNow()
			return src.putMeta(m)
		}
		if m, err = r.finish(src); err != nil {
			return err
		}
		r.stamp(m, resourceVersion, confirmed)
		return src.putMeta(m)
	}
	visible := func() {
		r.landed = true
		r.s.setMeta(m)
		r.s.db.warnLacksFields(m)
		if r.stage != nil {
			r.s.forgetDamage()
			r.s.indexing().buildMissing()
		}
		if r.pending != nil {
			r.pending()
		}
		r.s.stirHandlers()
	}
	return r.s.wrote(r.s.db.withRoom(func() error { return r.s.db.h.update(write, visible) }))
}

// stamp notes in meta that the source was listed, and how: as of resourceVersion, in which
// form, by which server.
func (r *Relist) stamp(m *sourceMeta, resourceVersion string, confirmed time.Time) {
	r.listedAt(m, resourceVersion)
	live := r.s.metaNow()
	m.markList(live, resourceVersion, r.first || r.all || r.o.NewTimeline || m.remark || live.Local,
		r.s.db.opts.Clock.Now().UnixNano())
	m.ResourceVersion, m.ServedForm = resourceVersion, r.o.ServedForm
	if m.NewestPage = ""; versions.Newer(r.newest, resourceVersion) {
		m.NewestPage = r.newest
	}
	m.confirm(r.s.db.device, confirmed)
	r.s.compared.Store(nil)
	m.Compared, m.ComparedBy = r.s.db.device.at(r.s.db.opts.Clock.Now())
	if m.Differed = 0; r.o.Audit && !r.first {
		m.Differed = uint64(r.missed + r.Deleted)
	}
	switch {
	case r.all && !r.first:
		m.Formed, m.Reformed = live.Seq+1, m.Seq+1
	case m.Reformed > 0 && live.Noted.unstored() > 0: // notes have objects of another form
		m.Reformed = m.Seq + 1
	}
	m.TypeHash, m.Transform = r.s.typeHash, r.s.transformVersion()
	r.s.setKind(m)
	if r.o.NewTimeline {
		m.Timeline++
	}
	m.Restored = m.Restored && !r.first && !r.o.NewTimeline
	r.noteServer(m)
}

// allThere returns ErrAbandoned if there is damage that the relist does not know of.
func (r *Relist) allThere() error {
	if r.first || r.hurt || r.met.Load() != nil {
		return r.metDamage()
	}
	err := r.s.view(func(m *sourceMeta, t sourceTx) error {
		n, err := t.gen(m.Generation).Items.Count()
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

// index adds the values of indices that were added since the changes were prepared.
func (r *Relist) index() error {
	set := r.s.indexing().indexSet()
	if r.stage == nil {
		for _, c := range r.changes {
			r.s.indexing().refresh(c)
		}
		return nil
	}
	if r.stage.set == set {
		return nil
	}
	if !r.stage.begun {
		for _, it := range r.stage.held {
			if it.c != nil {
				r.s.indexing().refresh(it.c)
			}
		}
		r.stage.set = set
		return nil
	}
	if err := r.s.indexing().reindex(set.fns, r.stageMeta, r.updateStage); err != nil {
		return err
	}
	r.stage.set = set
	return nil
}

func (r *Relist) finish(src sourceTx) (*sourceMeta, error) {
	if r.stage != nil {
		return r.finishStage(src)
	}
	now := r.s.metaNow()
	m := now.clone()
	g, err := src.createGen(m.Generation)
	if err != nil {
		return nil, err
	}
	m.Local, m.Noted.Nameless = false, 0
	r.noteNameless(m)
	m.date(r.s.db.device)
	a := &applier{s: r.s.Store, src: src, m: m, from: g, to: g, served: true, now: r.s.db.opts.Clock.Now().UnixNano(),
		overwrite: true, listed: true}
	for _, c := range r.changes {
		if err := a.apply(c); err != nil {
			return nil, err
		}
	}
	r.entries = a.entries
	if err := a.journal(); err != nil {
		return nil, err
	}
	r.pending, err = r.s.writePending(src, m, now.Seq, a.journaled)
	return m, err
}

// forgetDamage is for records that are all new: from the server, mended or none.
func (s *Store) forgetDamage() {
	s.mu.Lock()
	s.db.repairs.Add(1)
	if s.broken != nil {
		s.broken, s.brokenCh = nil, make(chan struct{})
	}
	s.tellChanged()
	s.mu.Unlock()
	s.settleMemory()
}
