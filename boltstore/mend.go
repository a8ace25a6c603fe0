package boltstore

import (
	"bytes"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// Mend removes damaged objects from a source that the program fills itself, and keeps the
// rest with its times. Err is nil afterwards. Mend does nothing if Err is nil. It also
// does nothing to an informer's source, which a relist mends. Replace mends, too.
func (s *Claimed) Mend() error {
	if s.Err() == nil || !s.FilledByProgram() {
		return nil
	}
	return s.write(&Batch{mends: true})
}

// changes returns the batch's changes. A Replace also deletes the objects at all other
// keys. If the source is damaged and no server will list it, Replace and Mend begin
// another generation.
func (w *work) changes(a *applier) ([]*Change, error) {
	mends, replaces := w.b.mends && w.meta.Generation > 0, w.b.replaces && w.meta.Generation > 0
	w.mended = (mends || replaces) && (w.meta.Degraded != "" || w.s.Err() != nil) && w.s.filledByProgram(w.meta)
	switch {
	case w.mended:
		return w.b.Changes, a.mend(mends)
	case replaces:
		others, err := a.others(w.b.Changes)
		return append(others, w.b.Changes...), err
	}
	return w.b.Changes, nil
}

// others deletes the objects at all keys but those of the changes.
func (a *applier) others(changes []*Change) (gone []*Change, err error) {
	stay := map[string]bool{}
	for _, c := range changes {
		stay[c.key] = true
	}
	err = a.to.Items.Each(func(r layout.Raw) {
		if key, err := keyOf(r); err == nil && !stay[key] {
			gone = append(gone, &Change{typ: cache.Deleted, key: key})
		}
	})
	return gone, err
}

// mend begins another generation, with the records that can be read if keep is true. It
// does so since an unreadable record cannot be taken out of the digests. Notes of indices
// that lack a record stay with the record.
func (a *applier) mend(keep bool) error {
	type record struct {
		key  string
		r    *format.Record
		raw  []byte
		note *note
	}
	var kept []record
	lost, unread := 0, false
	if keep {
		err := a.from.Items.Each(func(rw layout.Raw) {
			raw := bytes.Clone(rw.Open())
			key, r, err := a.s.owner.ParseRecord(rw.Key, raw)
			if err == nil {
				_, err = a.s.reading().decode(key, r, false)
			}
			if err != nil {
				lost++
				return
			}
			n := a.from.notes.get(rw.Key)
			if n != nil {
				unread = unread || n.damage != nil
				n = &note{Key: key, Time: n.Time, Why: n.Why, Indices: n.Indices}
			}
			kept = append(kept, record{key, r, raw, n})
		})
		if err != nil {
			return err
		}
	}
	m := a.m
	m.empty()
	if unread {
		m.doubtIndices()
	}
	m.Generation++
	if err := a.src.DropGensExcept(); err != nil {
		return err
	}
	g, err := a.src.createGen(m.Generation)
	if err != nil {
		return err
	}
	a.from, a.to = g, g
	for _, k := range kept {
		err := a.give(k.key, k.r, k.raw, nil)
		if err == nil && k.note != nil {
			err = g.notes.put(m, index.AppendKey(nil, k.key), k.note, nil)
		}
		if err != nil {
			return fmt.Errorf("mend %s: %w", a.s.source, err)
		}
	}
	if keep {
		a.s.db.log().Info("Warning: damage has taken some of the program's own objects; the others stay", "source", a.s.source.String(), "lost", lost, "kept", len(kept))
	}
	return nil
}
