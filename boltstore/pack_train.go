package boltstore

import (
	"bytes"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pack"
)

// trainFrom trains a dictionary from the payloads of changes, if there is none.
func (s packing) trainFrom(changes []*Change) {
	if s.packs.Current().Version >= format.PackedByDict || len(changes) < pack.MinObjects || !s.packs.Begin(s.db.opts.Clock.Now()) {
		return
	}
	defer s.packs.End()
	var sample pack.Sampler
	step := max(len(changes)/pack.MaxSamples, 1)
	for i := 0; i < len(changes); i += step {
		if c := changes[i]; c.payload != nil && c.by == nil {
			sample.Add(c.payload)
		}
	}
	s.noteTraining(s.train(sample.Samples))
}

// trainable returns the claimed sources for which a training is due.
func (c *committer) trainable(now time.Time) (due []*Store) {
	if c.db.opts.Compression == CompressionNone {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.stores {
		if s.metaNow().Items.Count >= pack.MinObjects && s.packs.Due(now) {
			due = append(due, s)
		}
	}
	return due
}

// trainStored trains a dictionary from the records in the file, if it is due.
func (s packing) trainStored() {
	m := s.metaNow()
	if s.db.opts.Compression == CompressionNone || m.Items.Count < pack.MinObjects || m.TypeHash != s.typeHash ||
		!s.packs.Begin(s.db.opts.Clock.Now()) {
		return
	}
	defer s.packs.End()
	var sample pack.Sampler
	var raws []layout.Raw
	err := s.view(func(m *sourceMeta, src sourceTx) error {
		raws = nil
		size, i, step := 0, 0, max(int(m.Items.Count)/pack.MaxSamples, 1)
		return src.gen(m.Generation).Items.Each(func(r layout.Raw) {
			if i++; i%step == 0 && size+len(r.Stored) <= pack.MaxSampleBytes {
				raws = append(raws, layout.Raw{Key: bytes.Clone(r.Key), Stored: bytes.Clone(r.Open())})
				size += len(r.Stored)
			}
		})
	})
	for _, rw := range raws {
		if _, r, err := s.owner.ParseRecord(rw.Key, rw.Stored); err == nil {
			if b, err := s.plain(r, nil); err == nil {
				sample.Add(b)
			}
		}
	}
	if err == nil {
		err = s.train(sample.Samples)
	}
	s.noteTraining(err)
}

func (s packing) noteTraining(err error) {
	if err != nil {
		s.db.log().V(1).Info("No dictionary was trained, payloads are packed as before", "source", s.source.String(), "reason", err.Error())
	}
}

// train makes a dictionary of the samples and stores it, if it saves enough. Later
// objects are packed by it.
func (s packing) train(samples [][]byte) error {
	var version uint32
	var n int
	err := s.view(func(m *sourceMeta, src sourceTx) error { version, n = src.nextDict(m); return nil })
	if err != nil {
		return err
	}
	if n >= pack.MaxDicts {
		return fmt.Errorf("the source has %d dictionaries", n)
	}
	version = s.packs.NextVersion(version)
	p, err := pack.Train(version, samples)
	if err != nil {
		return err
	}
	err = s.db.h.update(func(tx *bolt.Tx) error {
		src, err := s.bucket(tx)
		if err != nil {
			return err
		}
		m, err := src.meta()
		if err != nil {
			return err
		}
		if now, _ := src.nextDict(m); s.packs.NextVersion(now) != version {
			return fmt.Errorf("dictionary %d was not expected", now-1)
		}
		return src.putDict(version, dictValue{Dict: p.Dict, Ratio: p.Ratio, Trained: s.db.opts.Clock.Now().UnixNano()})
	}, func() {
		s.packs.Add(p)
	})
	if err == nil {
		s.db.log().V(1).Info("Trained a dictionary", "source", s.source.String(), "version", version, "bytes", len(p.Dict),
			"samples", len(samples), "ratio", p.Ratio)
	}
	return err
}
