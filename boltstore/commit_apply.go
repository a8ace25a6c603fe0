package boltstore

import (
	"bytes"

	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/index"
	"github.com/kubewake/kubewake/internal/versions"
)

// apply writes a batch in the transaction. m is the source's meta before it.
func (w *work) apply(tx *bolt.Tx, m *sourceMeta) error {
	src, err := w.source(tx)
	if err != nil {
		return err
	}
	if w.landed {
		w.meta = w.s.metaNow()
		return src.putMeta(w.meta)
	}
	w.meta, w.entries, w.pending = m.clone(), nil, nil
	w.meta.changed = nil                                           // those of an earlier batch are its own
	journaled := !w.b.local || !w.s.writer.filledByProgram(w.meta) // otherwise nobody is told
	if err := w.begin(src); err != nil {
		return err
	}
	w.meta.date(w.s.db.device)
	a := &applier{s: w.s, src: src, m: w.meta, in: src.contents(), now: w.now(journaled), overwrite: w.b.local}
	if l := w.b.list; l != nil {
		a.overwrite, a.listed, a.unseen, a.spill = true, true, l.r.first, l.r.found.spilled || l.end == nil
		if l.r.first {
			a.in.Items.Bucket.FillPercent = compactFill // items come in the order of their keys, or nearly
		}
	}
	changes, err := w.changes(a)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if err := a.apply(c); err != nil {
			return err
		}
	}
	if w.mended {
		if err := a.mend(); err != nil {
			return err
		}
	}
	changed := len(w.meta.changed) > 0 || len(a.drafts) > 0 || w.meta.Noted != m.Noted || w.b.replaces
	w.stamp(journaled, w.b.local && changed)
	if journaled {
		if err := w.journal(a, m); err != nil {
			return err
		}
	}
	return src.putMeta(w.meta)
}

// source opens the source's buckets.
func (w *work) source(tx *bolt.Tx) (sourceTx, error) {
	if l := w.b.list; l != nil {
		return l.r.source(tx)
	}
	return w.s.bucket(tx)
}

// journal writes what the batch has changed for those who are told. was is the meta before
// the batch.
func (w *work) journal(a *applier, was *sourceMeta) (err error) {
	if err := a.journal(); err != nil {
		return err
	}
	w.entries = a.entries
	if l := w.b.list; l != nil {
		err = l.stamp(a, was)
	} else {
		w.meta.markChanges(was, a.now)
	}
	if err != nil {
		return err
	}
	if w.pending, err = w.s.handlers.write(a.src, w.meta, was.Seq, a.journaled); err != nil {
		return err
	}
	const blocks = 8 // so that trimming never stalls a commit
	return a.src.trimJournal(w.meta, w.s.db.opts.JournalBytes, w.s.db.commit.journalFrom(), blocks)
}

// stamp notes in meta what the batch says about the source, and what has been noted since
// the last commit. What the program changes in an informer's source, which is journaled,
// takes its resume point away.
func (w *work) stamp(journaled, byProgram bool) {
	s, m := w.s, w.meta
	m.Local = m.Local || byProgram // until a list
	switch {
	case byProgram && journaled:
		m.ResourceVersion = ""
	case w.b.ResourceVersion != "" && !(w.b.local && journaled):
		m.ResourceVersion = w.b.ResourceVersion
	}
	if w.b.replaces && !journaled { // nothing else is there
		m.TypeHash, m.Transform = s.form.typeHash, s.form.transformVersion()
	}
	if !w.b.Confirmed.IsZero() {
		m.Confirmed, m.ConfirmedBy = w.b.at, w.b.by
	}
	s.stampNotes(m)
	m.NoPlain = m.NoPlain && s.handlers.noPlain.Load()
	s.coder.setKind(m)
	if s.claimDue() {
		m.claimedNow(s.db.device)
	}
	m.Told = max(m.Told, min(s.handlers.told.Load(), m.Seq)) // the told mark, see SetTold
}

// begin makes sure that there are contents to store changes in.
func (w *work) begin(src sourceTx) error {
	m := w.meta
	there := m.Contents != contentsNone
	hurt := m.Degraded != "" || w.s.Err() != nil
	w.mended = there && hurt && (w.b.mends || w.b.replaces) && w.s.writer.filledByProgram(m)
	if len(w.b.Changes) == 0 && !w.b.replaces && !w.mended && w.b.list == nil {
		return nil
	}
	m.Local = m.Local || w.b.local && m.Contents != contentsWhole // nobody has listed them
	l := w.b.list
	if m.Contents == contentsPartial && (l == nil || l.r.startsOver()) { // what an interrupted list has left
		m.dropPartial()
		if err := src.DropContents(); err != nil {
			return err
		}
	}
	if l != nil {
		l.begin(m)
	} else if m.Contents != contentsWhole {
		m.Contents, m.TypeHash, m.Transform = contentsWhole, w.s.form.typeHash, w.s.form.transformVersion()
	}
	_, err := src.createContents()
	return err
}

// applier turns changes into records, index entries, digests and journal entries.
type applier struct {
	s   *source
	src sourceTx
	m   *sourceMeta
	in  contentsTx
	now int64
	// overwrite stores each change whatever the versions say: the server was restored,
	// or the caller knows better.
	overwrite bool
	// unseen: the changes are not journaled and no handler is told; the objects were
	// found in the file.
	unseen bool
	// spill: entries are not kept in memory; they are read from the journal.
	spill bool
	// hidden: the previous record of the key at hand is only in its note.
	hidden bool
	// listed: the changes come from a list.
	listed bool

	forgot  *indexSet
	drafts  []format.Draft
	entries []*Entry
	// journaled are the drafts as they are in the journal, see journal.
	journaled []format.Draft
	keyBuf    []byte
	entBuf    []byte
}

// apply applies one change. It drops a change that is older than what the file holds,
// and one that changes nothing.
func (a *applier) apply(c *Change) error {
	k := index.AppendKey(a.keyBuf[:0], c.key)
	a.keyBuf = k
	was := a.look(k)
	before := a.noteOf(k)
	if a.hidden = was.base == nil && !was.damaged && before != nil && before.Record != nil; a.hidden {
		if _, r, err := a.s.coder.owner.ParseRecord(k, before.Record); err == nil {
			was.base, was.baseRaw = r, before.Record
		}
	}
	if c.replaced(was) {
		return nil
	}
	if was.base != nil && !a.overwrite && a.stale(c, was.base) {
		a.s.writer.stale.Add(1)
		return nil
	}
	if c.unstored != "" {
		return a.noteUnstored(c, was, before)
	}
	if err := a.settleNote(c, was, before); err != nil {
		return err
	}
	if c.typ == cache.Deleted {
		return a.remove(c, was)
	}
	return a.put(c, was)
}

// stale says whether c has nothing new for a file that has the record old. Versions that cannot be
// compared count in the order in which they arrive. Other content under the same version
// is new.
func (a *applier) stale(c *Change, old *format.Record) bool {
	switch {
	case c.rv != old.ResourceVersion:
		return versions.Newer(old.ResourceVersion, c.rv)
	case c.unstored != "": // the file has that version
		return c.rv != "" && c.uid == old.UID && !a.hidden
	}
	return !a.hidden && a.unchanged(c, old)
}

// recordOf makes the record of an object that is stored.
func (a *applier) recordOf(c *Change, was keyState) (next *format.Record, raw []byte, err error) {
	a.forgetIndices(c.set)
	for _, name := range c.failed {
		im := a.m.Indices[name]
		im.Failed++
		a.m.Indices[name] = im
	}
	next = &format.Record{Codec: a.s.coder.codec.ID(), ResourceVersion: c.rv, UID: c.uid, Stored: a.now,
		Born:   a.m.Seq + uint64(len(a.drafts)) + 1,
		Values: c.values}
	c.fill(next)
	switch {
	case was.base != nil && was.base.UID == c.uid:
		next.Born = was.base.Born
	case a.unseen:
		next.Born = a.m.Seq // it was there before any entry
	}
	raw, err = next.Encode(a.s.coder.owner, c.key)
	return next, raw, err
}

// put stores an object that the server has shown.
func (a *applier) put(c *Change, was keyState) error {
	next, raw, err := a.recordOf(c, was)
	if err != nil {
		return err
	}
	old, oldRaw := was.base, was.baseRaw
	switch {
	case c.quiet:
	case old == nil, a.hidden && old.UID == c.uid:
		a.draft(cache.Added, c, next, raw, nil, nil)
	case old.UID != c.uid && old.UID != "" && c.uid != "":
		// Another object under the same key: the final state of the old one was missed.
		a.draft(cache.Deleted, &Change{typ: cache.Deleted, key: c.key}, nil, nil, old, oldRaw)
		next.Born++
		if raw, err = next.Encode(a.s.coder.owner, c.key); err != nil {
			return err
		}
		a.draft(cache.Added, c, next, raw, nil, nil)
	default:
		a.draft(cache.Updated, c, next, raw, old, oldRaw)
	}
	if !a.unseen && !a.spill && c.obj != nil {
		a.s.reader.keep(c.key, next, c.obj) // handlers read it next
	}
	a.show(itemChange{key: c.key, next: next, obj: c.obj})
	return a.giveItem(c.key, was, next, raw)
}

// show notes the item that readers see at a key once the transaction is visible.
func (a *applier) show(c itemChange) {
	if a.m.Contents == contentsWhole {
		a.m.changed = append(a.m.changed, c)
	}
}

// giveItem stores a record as the item that readers see.
func (a *applier) giveItem(key string, was keyState, next *format.Record, raw []byte) error {
	if was.item == nil {
		return a.give(key, next, raw, nil)
	}
	if err := a.take(key, was.item, was.raw, next); err != nil {
		return err
	}
	return a.give(key, next, raw, was.item)
}

// takeItem removes the record that readers see.
func (a *applier) takeItem(key string, was keyState) error {
	if err := a.take(key, was.item, was.raw, nil); err != nil {
		return err
	}
	a.show(itemChange{key: key})
	return a.in.Items.Delete(bytes.Clone(was.k))
}

// forgetIndices marks the indices that are not in the set as incomplete: objects stored
// now are not entered in them.
func (a *applier) forgetIndices(set *indexSet) {
	if a.forgot == set {
		return
	}
	a.forgot = set
	for name, im := range a.m.Indices {
		if set.fns[name] == nil && im.Complete {
			im.Complete, im.Failed = false, 0
			a.m.Indices[name] = im
		}
	}
}

// remove deletes an object that is gone from the server.
func (a *applier) remove(c *Change, was keyState) error {
	switch {
	case was.damaged: // it was there; nothing else is known
		a.draft(cache.Deleted, c, nil, nil, nil, nil)
	case was.base != nil:
		if err := a.draftGone(c, was); err != nil {
			return err
		}
	case c.unknown && !a.overwrite:
		if err := a.draftGone(c, was); err != nil {
			return err
		}
	}
	switch {
	case was.item != nil:
		return a.takeItem(c.key, was)
	case was.damaged:
		a.show(itemChange{key: c.key})
		return a.in.Items.Delete(bytes.Clone(was.k))
	}
	return nil
}

// draftGone drafts the delete of the object that the server showed last, or of one that
// the file does not hold.
func (a *applier) draftGone(c *Change, was keyState) error {
	var r *format.Record
	var final []byte
	if was.base != nil && c.uid != "" && was.base.UID != "" && c.uid != was.base.UID {
		// The deleted object could not be stored. Handlers know the one before it.
		c = &Change{typ: cache.Deleted, key: c.key}
	}
	if c.payload != nil {
		r = &format.Record{Codec: a.s.coder.codec.ID(), ResourceVersion: c.rv, UID: c.uid, Stored: a.now,
			Born: bornUnknown}
		if was.base != nil {
			r.Born = was.base.Born
		}
		c.fill(r)
		var err error
		if final, err = r.Encode(a.s.coder.owner, c.key); err != nil {
			return err
		}
	}
	a.draft(cache.Deleted, c, r, final, was.base, was.baseRaw)
	return nil
}

// draft makes a journal entry and what Pop hands out for it: the change from the record
// old to next, with their bytes. Each may be nil.
func (a *applier) draft(
	typ cache.DeltaType, c *Change, next *format.Record, nextRaw []byte, old *format.Record, oldRaw []byte,
) {
	if a.unseen {
		return
	}
	a.m.remark = a.m.remark || a.hidden && oldRaw != nil // no earlier moment showed that record
	d := format.Draft{Type: typ, Time: a.now, Key: c.key, Next: nextRaw, Prev: format.DiffOf(nextRaw, oldRaw),
		Unpacked: (next == nil || next.Packed == format.NotPacked) && (old == nil || old.Packed == format.NotPacked)}
	a.drafts = append(a.drafts, d)
	reformed := a.hidden && oldRaw != nil && a.m.Reformed > 0
	if reformed {
		a.m.Reformed = a.m.Seq + uint64(len(a.drafts)) + 1
	}
	if a.spill {
		return
	}
	e := entryOf(a.s, a.m.Seq+uint64(len(a.drafts)), d)
	e.obj = c.obj
	switch {
	case typ != cache.Deleted:
		e.Born = next.Born
	case old != nil:
		e.Born = old.Born
	case next != nil:
		e.Born = next.Born
	}
	if old != nil && !reformed { // memory has it as it was stored
		e.prevObj = a.s.reader.known(c.key, old)
	}
	a.entries = append(a.entries, e)
}
