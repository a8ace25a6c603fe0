package boltstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// SetAside moves the source's contents out of the way, to /aside/<unix ns>/<id>,
// because they belong to another cluster. The source is then as if never listed. No
// deletes are journaled. Durable handlers are told a Reset.
func (s *Claimed) SetAside() error {
	var m *sourceMeta
	err := s.wrote(s.db.h.update(func(tx *bolt.Tx) error {
		if err := s.errReleased(); err != nil {
			return err
		}
		old := s.metaNow()
		// Seqs go on, so that no receipt comes to mean another entry.
		m = (&sourceMeta{Source: s.source, TypeHash: s.typeHash, APIVersion: old.APIVersion, Kind: old.Kind, Scope: old.Scope, Names: old.Names, Categories: old.Categories, Columns: old.Columns,
			Transform: s.transformVersion(), Epoch: old.Epoch + 1, NoPlain: old.NoPlain, Seq: old.Seq, Told: old.Seq,
			Handlers: old.Handlers, Formed: old.Formed, Reformed: old.Reformed, Former: old.newest()}).clone()
		m.claimedNow(s.db.device)
		s.indexing().complete(m, s.indexing().indexSet().fns) // of no objects
		src, err := s.db.h.moveAsideKeeping(tx, s.id, m, s.db.collecting().asideTime())
		if err != nil {
			return err
		}
		return src.putMeta(m)
	}, func() {
		s.stands.Store(false)
		s.setMeta(m)
		s.forgetDamage()
		s.stirHandlers()
	}))
	if err != nil {
		return fmt.Errorf("boltstore: set %s aside: %w", s.source, err)
	}
	return nil
}

// moveAsideKeeping sets the source aside and makes a new one, whose meta m is. The handlers in m
// begin with a Reset.
func (h *handle) moveAsideKeeping(tx *bolt.Tx, id string, m *sourceMeta, now time.Time) (sourceTx, error) {
	if err := h.moveAside(tx, id, now); err != nil {
		return sourceTx{}, err
	}
	b, err := tx.Bucket(layout.BucketSources).CreateBucket([]byte(id))
	if err != nil {
		return sourceTx{}, err
	}
	src := sourceIn(b, id, h.seal)
	return src, src.restartHandlers(m)
}

func (h *handle) moveAside(tx *bolt.Tx, id string, now time.Time) error {
	sources, name := tx.Bucket(layout.BucketSources), []byte(id)
	if sources == nil || sources.Bucket(name) == nil {
		return fmt.Errorf("%w: %s", ErrNoSource, id)
	}
	aside, err := layout.Create(tx, layout.BucketAside)
	if err != nil {
		return err
	}
	at := uint64(now.UnixNano())
	for b := aside.Bucket(layout.U64(at)); b != nil && b.Bucket(name) != nil; b = aside.Bucket(layout.U64(at)) {
		at++ // the clock has stood, or was set back
	}
	to, err := layout.Create(aside, layout.U64(at))
	if err != nil {
		return err
	}
	return sources.MoveBucket(name, to)
}

// undated is added to the time of contents that are set aside while nothing shows that
// the clock is right. Real times do not reach it before 2116.
const undated = 1 << 62

// asideTime is the time under which contents are set aside now.
func (db collecting) asideTime() time.Time {
	now := db.opts.Clock.Now()
	if db.device.right() {
		return now
	}
	return time.Unix(0, now.UnixNano()&(undated-1)|undated)
}

// dateAside gives undated contents the present time. The clock must be right now.
func (db collecting) dateAside() error {
	last := func(tx *bolt.Tx) []byte {
		aside := tx.Bucket(layout.BucketAside)
		if aside == nil {
			return nil
		}
		k, _ := aside.Cursor().Last()
		if len(k) != 8 || binary.BigEndian.Uint64(k) < undated {
			return nil
		}
		return bytes.Clone(k)
	}
	var k []byte
	err := db.h.view(func(tx *bolt.Tx) error { k = last(tx); return nil })
	if err != nil || k == nil {
		return err
	}
	return db.h.update(func(tx *bolt.Tx) error {
		aside, now := tx.Bucket(layout.BucketAside), uint64(db.opts.Clock.Now().UnixNano())
		for k := last(tx); k != nil; k = last(tx) {
			for aside.Bucket(layout.U64(now)) != nil {
				now++
			}
			to, err := aside.CreateBucket(layout.U64(now))
			if err != nil {
				return err
			}
			from := aside.Bucket(k)
			var names [][]byte
			if err := from.ForEachBucket(func(name []byte) error { names = append(names, bytes.Clone(name)); return nil }); err != nil {
				return err
			}
			for _, name := range names {
				if err := from.MoveBucket(name, to); err != nil {
					return err
				}
			}
			if err := layout.Drop(aside, k); err != nil {
				return err
			}
		}
		return nil
	}, nil)
}

// Epoch counts how often the contents were set aside. Objects of different epochs have
// nothing to do with one another.
func (s *Claimed) Epoch() uint64 { return s.metaNow().Epoch }
