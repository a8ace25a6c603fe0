package boltstore

import (
	"cmp"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"
)

var bucketAside = []byte("aside")

// SetAside moves what the file holds of the source out of the way, to
// /aside/<unix ns>/<id>: it belongs to another cluster. No deletes are
// journaled; the source is as if never synced. Durable handlers are to start
// over.
func (s *Store) SetAside() error {
	var m *sourceMeta
	err := s.db.h.update(func(tx *bolt.Tx) error {
		if err := s.errReleased(); err != nil {
			return err
		}
		old := s.metaNow()
		src, ok := s.db.h.source(tx, s.id)
		if !ok {
			return fmt.Errorf("%w: %s", ErrNoSource, s.source)
		}
		next, _ := src.nextDict(old)
		// Seqs go on, so that no handler's position means something else.
		m = (&sourceMeta{Source: s.source, TypeHash: s.type_, APIVersion: old.APIVersion, Kind: old.Kind, Scope: old.Scope, Names: old.Names,
			Transform: s.transformVersion(), Epoch: old.Epoch + 1, NamesLost: old.NamesLost, Seq: old.Seq, Told: old.Seq}).clone()
		m.claimedNow(s.db.device)
		src, err := s.db.h.moveAsideKeeping(tx, s.id, m, s.db.opts.Clock.Now())
		if err != nil {
			return err
		}
		if err := src.beginDicts(next); err != nil {
			return err
		}
		return src.putMeta(m)
	}, func() { s.setMeta(m); s.packs.forget(); s.repaired() })
	if err != nil {
		return fmt.Errorf("boltstore: set %s aside: %w", s.source, err)
	}
	return nil
}

// Server is what is known of who answers. "" leaves what the file knows.
type Server struct {
	Address string
	// ClusterUID is the UID of kube-system, FlowSchemaUID that of the flow schema
	// by which the server classifies the source's requests, as its answers tell.
	ClusterUID, FlowSchemaUID string
	// CA is a hash of the public key that vouches for the server's.
	CA string
}

// SetServer notes who answers.
func (s *Store) SetServer(by Server) error {
	return s.updateMeta(func(_ sourceTx, m *sourceMeta) error {
		m.answeredBy(by)
		return nil
	}, nil)
}

func (m *sourceMeta) answeredBy(by Server) {
	m.Server = cmp.Or(by.Address, m.Server)
	m.ClusterUID = cmp.Or(by.ClusterUID, m.ClusterUID)
	m.FlowSchemaUID = cmp.Or(by.FlowSchemaUID, m.FlowSchemaUID)
	m.ServerCA = cmp.Or(by.CA, m.ServerCA)
}

func (h *handle) moveAside(tx *bolt.Tx, id string, now time.Time) error {
	sources := tx.Bucket(bucketSources)
	name, err := sourceName(h.seal, id)
	if err != nil {
		return err
	}
	if sources == nil || sources.Bucket(name) == nil {
		return fmt.Errorf("%w: %s", ErrNoSource, id)
	}
	aside, err := tx.CreateBucketIfNotExists(bucketAside)
	if err != nil {
		return err
	}
	to, err := aside.CreateBucketIfNotExists(u64(uint64(now.UnixNano())))
	if err != nil {
		return err
	}
	return sources.MoveBucket(name, to)
}

// Epoch counts how often the contents were set aside: objects of different
// epochs have nothing to do with one another.
func (s *Store) Epoch() uint64 { return s.metaNow().Epoch }
