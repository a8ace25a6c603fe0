package boltstore

import (
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/index"
	"github.com/kubewake/kubewake/internal/listing"
)

// stage is a generation that a relist builds beside the served one. Its journal blocks
// lie above the committed seq. Nobody reads either before meta points at them.
type stage struct {
	meta *sourceMeta
	// set has the indices for which all staged records have values.
	set *indexSet
	// journalBytes is the size of the journal when the stage began.
	journalBytes uint64
	// at is how far a first list has come with the pages in the file or held, next how far
	// with the page being staged. nil means unknown.
	at, next *listing.Progress

	begun bool         // the generation is in the file
	held  []listedItem // the only page of a first list, which Commit stages
}

// toStage begins a new generation and stages the changes that were kept in memory. The
// generation of a first list begins with the first transaction that stages a part of it,
// unless there is an interrupted list's, which must not stay.
func (r *Relist) toStage() error {
	r.s.indexLock.Lock()
	m := r.s.metaNow().clone()
	set := r.s.indexing().indexSet()
	if !r.first && !r.all { // records are copied, with the values that they have
		set = r.s.stagedSet(m)
	}
	r.s.indexLock.Unlock()
	m.empty()
	m.Local = false
	r.stage = &stage{meta: m, set: set, journalBytes: m.JournalBytes}
	if r.first {
		if left, err := r.interrupted(); err != nil || !left {
			return r.s.explained(err)
		}
	}
	err := r.updateStageTo(func(sourceTx, *sourceMeta) (*listing.Progress, error) { return nil, nil }, nil)
	if err != nil {
		return fmt.Errorf("boltstore: relist of %s: %w", r.s.source, err)
	}
	return r.fill()
}

// interrupted says whether the file has the pages of an interrupted list.
func (r *Relist) interrupted() (left bool, err error) {
	err = r.s.view(func(m *sourceMeta, t sourceTx) error {
		b, _ := t.staged(m)
		left = b != nil
		return nil
	})
	return left, err
}

// beginStage makes the new generation. m becomes its meta.
func (r *Relist) beginStage(src sourceTx, m *sourceMeta) error {
	now := r.s.metaNow()
	m.Generation = now.Generation + 1
	if err := src.DropGensExcept(now.Generation); err != nil {
		return err
	}
	if err := src.dropJournalAbove(m.Seq); err != nil {
		return err
	}
	_, err := src.createGen(m.Generation)
	return err
}

// fill copies the records that pages have shown unchanged, then stages the changes.
func (r *Relist) fill() error {
	changed := map[uint64]struct{}{}
	var changes []listedItem
	for _, c := range r.changes {
		r.s.indexing().refresh(c) // indices may have been added since
		it := listedItem{k: index.AppendKey(nil, c.key), key: c.key, c: c}
		changed[r.hash(it.k)] = struct{}{}
		changes = append(changes, it)
	}
	r.changes = nil
	same := func(k []byte) bool {
		_, differs := changed[r.hash(k)]
		return r.hasSeen(k) && !differs
	}
	for from, more := []byte(nil), len(r.seen) > 0; more; {
		items, next, err := r.scan(from, same)
		if err != nil {
			return err
		}
		if _, err := r.stageItems(items); err != nil {
			return err
		}
		from, more = next, next != nil
	}
	_, err := r.stageItems(changes)
	return err
}

// stageBytes bounds the unpacked records of a transaction of the stage. bbolt has three
// to four times as much in memory until it ends.
const stageBytes = 1 << 20

// stageItems stages items, in as many transactions as their size needs. It returns how
// many it has staged. Commit stages the only page of a first list, if that is small.
func (r *Relist) stageItems(items []listedItem) (int, error) {
	if r.holds(items) {
		r.stage.held, r.stage.at = items, r.stage.next
		return len(items), nil
	}
	if held := r.stage.held; held != nil && (len(items) > 0 || r.stage.next != nil) {
		if _, err := r.stageTo(r.stage.at, held); err != nil {
			return 0, err
		}
		r.stage.held = nil
	}
	return r.stageTo(r.stage.next, items)
}

// holds says whether the items are the only page of a first list, and fit a transaction.
func (r *Relist) holds(items []listedItem) bool {
	last := r.stage.next != nil && r.stage.next.Continue == "" && !r.stage.begun && r.stage.held == nil
	return last && r.fit(items) == len(items)
}

// fit is how many of the items a transaction has room for.
func (r *Relist) fit(items []listedItem) (n int) {
	for room := min(r.s.db.opts.maxCommitBytes, stageBytes); room > 0 && n < len(items); n++ {
		room -= items[n].unpacked()
	}
	return n
}

// stageTo stages items. The last transaction notes that the list has come to next, if that
// is not nil.
func (r *Relist) stageTo(next *listing.Progress, items []listedItem) (done int, err error) {
	for begun := false; done < len(items) || !begun && next != nil; begun = true {
		n := r.fit(items[done:])
		err := r.updateStageTo(func(src sourceTx, m *sourceMeta) (*listing.Progress, error) {
			at := r.stage.at
			if done+n == len(items) && next != nil {
				at = next
			}
			return at, r.stageIn(src, m, items[done:done+n])
		}, func() { done += n })
		if err != nil {
			return done, fmt.Errorf("boltstore: relist of %s: %w", r.s.source, err)
		}
	}
	return done, nil
}

// stageIn stages items in a transaction. m is the meta of the stage.
func (r *Relist) stageIn(src sourceTx, m *sourceMeta, items []listedItem) error {
	m.date(r.s.db.device)
	a := &applier{s: r.s.Store, src: src, m: m, now: r.s.db.opts.Clock.Now().UnixNano(), overwrite: true, unseen: r.first, spill: true,
		from: r.before(src), to: src.gen(m.Generation), noted: r.s.mayNote(), listed: true}
	a.to.Items.Bucket.FillPercent = compactFill // items come in the order of their keys, or nearly
	for _, it := range items {
		if err := a.stage(it); err != nil {
			return err
		}
	}
	return a.journal()
}

// stage applies an item's change. Without a change it copies the record as it is, with
// its note.
func (a *applier) stage(it listedItem) error {
	if it.c != nil {
		return a.apply(it.c)
	}
	was := a.look(it.k)
	if was.here {
		return nil
	}
	if a.noted {
		if n := a.from.notes.get(it.k); n != nil {
			if err := a.putNote(it.k, n); err != nil {
				return err
			}
		}
	}
	return a.carryOver(it.k)
}

// carryOver copies the record of a key.
func (a *applier) carryOver(k []byte) error {
	raw := a.from.Items.Get(k)
	key, r, err := a.s.owner.ParseRecord(k, raw)
	if err != nil {
		return err // the next try compares again
	}
	return a.give(key, r, raw, nil)
}

func (r *Relist) stageMeta() *sourceMeta { return r.stage.meta }

// updateStage changes the new generation in its own transaction.
func (r *Relist) updateStage(fn func(sourceTx, *sourceMeta) error) error {
	return r.updateStageTo(func(src sourceTx, m *sourceMeta) (*listing.Progress, error) { return r.stage.at, fn(src, m) }, nil)
}

// updateStageTo is updateStage. fn returns how far the list has come with the update.
func (r *Relist) updateStageTo(fn func(sourceTx, *sourceMeta) (*listing.Progress, error), visible func()) error {
	var m *sourceMeta
	var at *listing.Progress
	update := func(tx *bolt.Tx) error {
		src, err := r.source(tx)
		if err != nil {
			return err
		}
		m = r.stage.meta.clone()
		if !r.stage.begun {
			if err := r.beginStage(src, m); err != nil {
				return err
			}
		}
		if at, err = fn(src, m); err != nil {
			return err
		}
		return r.noteProgress(src, m, at)
	}
	staged := func() {
		r.stage.meta, r.stage.at, r.stage.begun = m, at, true
		if visible != nil {
			visible()
		}
	}
	return r.s.wrote(r.s.db.withRoom(func() error { return r.s.db.h.update(update, staged) }))
}

// finishStage returns the meta that points at the new generation.
func (r *Relist) finishStage(src sourceTx) (*sourceMeta, error) {
	st := *r.stage
	if !st.begun {
		st.meta = st.meta.clone() // Commit may be called again
		if err := r.beginStage(src, st.meta); err != nil {
			return nil, err
		}
		if err := r.stageIn(src, st.meta, st.held); err != nil {
			return nil, err
		}
	}
	now := r.s.metaNow()
	m := now.clone()
	m.takeStage(&st)
	m.NoPlain = m.NoPlain && r.s.noPlain.Load()
	r.noteNameless(m)
	if r.first || r.all { // every record has values for these
		r.s.indexing().complete(m, r.stage.set.fns)
	}
	// Any record may lack values in an index that the program does not use.
	m.staysIncomplete(now, func(name string) bool { return r.stage.set.fns[name] != nil })
	if r.lost {
		if err := src.restartHandlers(m); err != nil {
			return nil, err
		}
	}
	if err := src.dropProgress(m.Generation); err != nil {
		return nil, err
	}
	return m, src.DropGensExcept(m.Generation)
}

// Abort ends the relist and removes its stage. The pages of a first list stay if PageTo
// has said how far it has come. After Commit, Abort does nothing.
func (r *Relist) Abort() {
	if r.done || r.landed || r.stage == nil {
		return
	}
	r.done = true
	if r.stage.at != nil || !r.stage.begun {
		return
	}
	err := r.s.db.h.update(func(tx *bolt.Tx) error {
		src, ok := r.s.db.h.source(tx, r.s.id)
		if !ok || r.s.errReleased() != nil {
			return nil
		}
		m := r.s.metaNow()
		if err := src.DropGensExcept(m.Generation); err != nil {
			return err
		}
		return src.dropJournalAbove(m.Seq)
	}, nil)
	if err != nil {
		_ = r.s.wrote(err) // for DB.Err; a success would say nothing about the next list's writes
		r.s.db.log().Error(err, "The stage of an aborted relist could not be removed; the next claim removes it", "source", r.s.source.String())
	}
}
