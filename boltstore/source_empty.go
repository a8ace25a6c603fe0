package boltstore

import (
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/internal/listing"
)

// Empty removes the source's contents, because they belong to another cluster. The source
// is then as if never listed. No deletes are journaled. Durable handlers are told a Reset.
func (s Upstream) Empty() error {
	var m *sourceMeta
	err := s.db.commit.wrote(s.source, s.db.h.update(func(tx *bolt.Tx) error {
		if err := s.errReleased(); err != nil {
			return err
		}
		old := s.metaNow()
		// Seqs go on, so that no receipt comes to mean another entry.
		m = (&sourceMeta{Source: s.name, described: old.described, formMeta: old.formMeta, Epoch: old.Epoch + 1,
			NoPlain: old.NoPlain, Seq: old.Seq, Told: old.Seq, Handlers: old.Handlers,
			marksMeta: marksMeta{Former: old.newest()}}).clone()
		m.TypeHash, m.Transform = s.form.typeHash, s.form.transformVersion()
		m.claimedNow(s.db.device)
		s.indices.complete(m, s.indices.set().fns) // of no objects
		src, err := s.db.h.makeAnew(tx, s.id, m)
		if err != nil {
			return err
		}
		return src.putMeta(m)
	}, func() {
		s.facts.note(func(f *listing.Facts) { *f = listing.Facts{} })
		s.compared.Store(nil)
		s.setMeta(m, nil)
		s.health.forget()
		s.handlers.stir()
	}))
	if err != nil {
		return fmt.Errorf("boltstore: empty %s: %w", s.name, err)
	}
	return nil
}

// makeAnew removes a source and makes a new one, whose meta m is. The handlers in m begin
// with a Reset.
func (h *handle) makeAnew(tx *bolt.Tx, id string, m *sourceMeta) (sourceTx, error) {
	sources, name := tx.Bucket(layout.BucketSources), []byte(id)
	if sources == nil || sources.Bucket(name) == nil {
		return sourceTx{}, fmt.Errorf("%w: %s", ErrNoSource, id)
	}
	if err := layout.Drop(sources, name); err != nil {
		return sourceTx{}, err
	}
	src, err := h.makeSource(tx, id)
	if err != nil {
		return src, err
	}
	return src, src.restartHandlers(m)
}

// Epoch counts how often the source was emptied. Objects of different epochs have
// nothing to do with one another.
func (s Upstream) Epoch() uint64 { return s.metaNow().Epoch }
