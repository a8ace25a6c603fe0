package boltstore

import (
	"fmt"

	"github.com/kubewake/kubewake/index"
	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// apply brings a batch into the transaction.
func (w *work) apply(tx *bolt.Tx) error {
	src, ok := w.s.db.h.source(tx, w.s.id)
	if !ok {
		return fmt.Errorf("%w: %s", ErrNoSource, w.s.source)
	}
	if w.landed {
		w.meta = w.s.metaNow()
		return src.putMeta(w.meta)
	}
	w.meta, w.entries, w.positions = w.s.metaNow().clone(), nil, nil
	if w.meta.Generation == 0 && len(w.b.Changes) > 0 {
		if err := src.dropGensExcept(0); err != nil { // what an interrupted list has left
			return err
		}
		w.meta.Generation = 1
	}
	a := &applier{s: w.s, src: src, m: w.meta, now: w.s.db.opts.Clock.Now().UnixNano(), overwrite: w.b.unjournaled}
	if w.meta.Generation > 0 {
		g, err := src.createGen(w.meta.Generation)
		if err != nil {
			return err
		}
		a.from, a.to = g, g
	}
	for _, c := range w.b.Changes {
		if err := a.apply(c); err != nil {
			return err
		}
	}
	if w.b.ResourceVersion != "" {
		w.meta.ResourceVersion = w.b.ResourceVersion
	}
	if !w.b.Confirmed.IsZero() {
		w.meta.Confirmed = w.b.Confirmed.UnixNano()
	}
	if w.s.claimDue() {
		w.meta.Claimed = a.now
	}
	w.meta.Told = max(w.meta.Told, min(w.s.told.Load(), w.meta.Seq))
	if !w.b.unjournaled {
		if err := a.journal(); err != nil {
			return err
		}
		w.entries = a.entries
		var err error
		if w.positions, err = w.s.positions(src, w.meta); err != nil {
			return err
		}
		o := w.s.db.opts
		if err := src.trimJournal(w.meta, o.JournalBytes, o.Clock.Now().Add(-o.JournalAge)); err != nil {
			return err
		}
	}
	return src.putMeta(w.meta)
}

// applier turns changes into records, index entries, digests and journal
// entries. from is the generation that says what was there, to the one that is
// written; they differ only while a relist is staged.
type applier struct {
	s        *Store
	src      sourceTx
	m        *sourceMeta
	from, to genTx
	now      int64
	// overwrite stores what comes whatever the versions say: the server was
	// restored, or the caller knows.
	overwrite bool

	// unseen: nobody is told, the objects are found in the file.
	unseen bool
	// spill: entries are left to be read from the journal.
	spill bool

	forgot  bool
	drafts  []draft
	entries []*Entry
	keyBuf  []byte
	entBuf  []byte
}

// apply applies one change. One that is older than what the file holds, or no
// change at all, is dropped.
func (a *applier) apply(c *Change) error {
	k := index.AppendKey(a.keyBuf[:0], c.key)
	a.keyBuf = k
	var old *record
	var oldRaw []byte
	// In a stage an earlier page may have had the key.
	here := a.from == a.to
	if !here && a.to.items != nil {
		oldRaw = a.to.items.Get(k)
		here = oldRaw != nil
	}
	if oldRaw == nil && a.from.items != nil {
		oldRaw = a.from.items.Get(k)
	}
	damaged := false
	if oldRaw != nil {
		var err error
		if _, old, err = parseRecord(k, oldRaw); err != nil {
			damaged, oldRaw, old = true, nil, nil
			if here {
				// Its index entries and digest cannot be taken back: the
				// source must be read anew, and until then says so.
				a.s.damaged(err)
				a.m.Degraded = err.Error()
			}
		}
	}
	if old != nil && !a.overwrite && older(c, old) {
		a.s.stale.Add(1)
		return nil
	}
	if c.typ == cache.Deleted {
		switch {
		case damaged: // it was there, all we know
			a.note(cache.Deleted, c, nil, nil, nil, nil)
			if here {
				return a.to.items.Delete(k)
			}
			return nil
		case old == nil:
			return nil
		}
		return a.remove(c, old, oldRaw, here)
	}
	return a.put(c, old, oldRaw, here)
}

// older says whether c is not news to a file that holds old (invariant 5).
// Versions that cannot be compared count in the order they arrive.
func older(c *Change, old *record) bool {
	if c.rv == "" {
		return false
	}
	cmp, err := resourceversion.CompareResourceVersion(c.rv, old.rv)
	if err != nil {
		return c.rv == old.rv && c.uid == old.uid && c.typ != cache.Deleted
	}
	return cmp < 0 || cmp == 0 && c.uid == old.uid && c.typ != cache.Deleted
}

// put stores an object. here says whether old is in the generation that is
// written.
func (a *applier) put(c *Change, old *record, oldRaw []byte, here bool) error {
	a.forgetIndices()
	next := &record{codec: a.s.codec.ID(), rv: c.rv, uid: c.uid, stored: a.now, born: a.m.Seq + uint64(len(a.drafts)) + 1,
		values: c.values}
	if err := a.payload(next, c); err != nil {
		return err
	}
	switch {
	case old != nil && old.uid == c.uid:
		next.born = old.born
	case a.unseen:
		next.born = a.m.Seq // there before any entry
	}
	raw, err := next.encode(c.key)
	if err != nil {
		return err
	}
	switch {
	case c.quiet:
	case old == nil:
		a.note(cache.Added, c, next, raw, nil, nil)
	case old.uid != c.uid && old.uid != "" && c.uid != "":
		// Another object under the same key: the old one's final state was missed.
		a.note(cache.Deleted, &Change{typ: cache.Deleted, key: c.key}, nil, nil, old, oldRaw)
		next.born++
		if raw, err = next.encode(c.key); err != nil {
			return err
		}
		a.note(cache.Added, c, next, raw, nil, nil)
	default:
		a.note(cache.Updated, c, next, raw, old, oldRaw)
	}
	if !a.unseen && !a.spill {
		a.s.hot.put(c.key, next, c.obj) // whoever is told of it reads it next
	}
	if old == nil || !here {
		return a.give(c.key, next, raw, nil)
	}
	if err := a.take(c.key, old, oldRaw, next); err != nil {
		return err
	}
	return a.give(c.key, next, raw, old)
}

// forgetIndices marks indices that nobody asked for as incomplete, since what
// is stored now will not be entered there.
func (a *applier) forgetIndices() {
	if a.forgot {
		return
	}
	a.forgot = true
	for name, im := range a.m.Indices {
		if fn, _ := a.s.indexer(name); fn == nil && im.Complete {
			im.Complete = false
			a.m.Indices[name] = im
		}
	}
}

func (a *applier) remove(c *Change, old *record, oldRaw []byte, here bool) error {
	var r *record
	var final []byte
	if c.payload != nil {
		r = &record{codec: a.s.codec.ID(), rv: c.rv, uid: c.uid, stored: a.now, born: old.born}
		err := a.payload(r, c)
		if err != nil {
			return err
		}
		if final, err = r.encode(c.key); err != nil {
			return err
		}
	}
	a.note(cache.Deleted, c, r, final, old, oldRaw)
	if !here {
		return nil
	}
	if err := a.take(c.key, old, oldRaw, nil); err != nil {
		return err
	}
	return a.to.items.Delete(index.AppendKey(nil, c.key))
}

// give stores a record and the entries that it has and old had not.
func (a *applier) give(key string, r *record, raw []byte, old *record) error {
	if err := a.to.items.Put(index.AppendKey(nil, key), raw); err != nil {
		return fmt.Errorf("store %q: %w", key, err)
	}
	a.m.Items.add(recordHash(key, r))
	a.m.Bytes += uint64(len(raw))
	a.m.useDict(r.packed, 1)
	for _, iv := range r.values {
		var had []string
		if old != nil {
			had = old.valuesOf(iv.name)
		}
		_, added := index.Diff(had, iv.values)
		if err := a.entriesOf(key, iv.name, added, true); err != nil {
			return err
		}
	}
	return nil
}

// take takes back what old had and next has not.
func (a *applier) take(key string, old *record, oldRaw []byte, next *record) error {
	a.m.Items.remove(recordHash(key, old))
	a.m.Bytes -= min(a.m.Bytes, uint64(len(oldRaw)))
	a.m.useDict(old.packed, -1)
	for _, iv := range old.values {
		var keep []string
		if next != nil {
			keep = next.valuesOf(iv.name)
		}
		removed, _ := index.Diff(iv.values, keep)
		if err := a.entriesOf(key, iv.name, removed, false); err != nil {
			return err
		}
	}
	return nil
}

// entriesOf adds or removes the entries (v, key) of one index.
func (a *applier) entriesOf(key, name string, values []string, add bool) error {
	if len(values) == 0 {
		return nil
	}
	b, err := a.to.indices.create(name)
	if err != nil {
		return err
	}
	im := a.m.Indices[name]
	for _, v := range values {
		a.entBuf = index.AppendEntry(a.entBuf[:0], v, key)
		h := entryHash(a.entBuf)
		if add {
			im.Digest.add(h)
			err = b.put(a.entBuf, v, key)
		} else {
			im.Digest.remove(h)
			err = b.remove(a.entBuf, v, key)
		}
		if err != nil {
			return fmt.Errorf("index %s of %q: %w", name, key, err)
		}
	}
	a.m.Indices[name] = im
	return nil
}

// indexBucket is the name of an index's bucket, which must not be empty.
func indexBucket(name string) []byte { return index.AppendKey(nil, name) }

// note drafts a journal entry and what Pop will hand out for it: from the
// record old to next, with their bytes, each nil if there is none.
func (a *applier) note(typ cache.DeltaType, c *Change, next *record, nextRaw []byte, old *record, oldRaw []byte) {
	if a.unseen {
		return
	}
	d := draft{typ: typ, time: a.now, key: c.key, next: nextRaw, prev: diffOf(nextRaw, oldRaw),
		plain: (next == nil || next.packed == packNot) && (old == nil || old.packed == packNot)}
	a.drafts = append(a.drafts, d)
	if a.spill {
		return
	}
	e := entryOf(a.s, a.m.Seq+uint64(len(a.drafts)), d)
	e.obj = c.obj
	switch {
	case typ != cache.Deleted:
		e.Born = next.born
	case old != nil:
		e.Born = old.born
	}
	if old != nil {
		e.prevObj = a.s.hot.get(c.key, old)
	}
	a.entries = append(a.entries, e)
}

// journal writes the block of what was drafted and moves the seq.
func (a *applier) journal() error {
	if len(a.drafts) == 0 {
		return nil
	}
	n, err := a.src.appendBlock(a.m.Seq, a.s.plainDrafts(a.drafts))
	if err != nil {
		return err
	}
	a.m.Seq += uint64(len(a.drafts))
	a.m.JournalBytes += uint64(n)
	return nil
}
