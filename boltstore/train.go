package boltstore

import (
	"bytes"
	"fmt"
	"time"

	"github.com/kubewake/kubewake/boltstore/internal/format"

	"github.com/klauspost/compress/dict"
	"github.com/klauspost/compress/zstd"
	bolt "go.etcd.io/bbolt"
)

// A dictionary is trained from the first page of a source's first list, or
// from a sample of what the file holds once that is enough, and anew when the
// objects have changed so much that it packs far worse than it did.
const (
	trainMin     = 50        // objects
	trainSamples = 128       // objects at most
	trainBytes   = 512 << 10 // of samples at most: training takes some 40 times as much memory for a moment
	trainAgain   = time.Hour // after a training, or one that was in vain
	dictBytes    = 64 << 10  // at most
	dictsKept    = 8         // of a source; more wait for a claim that drops the unused
	worse        = 1.4       // times the ratio of when it was trained
	worseAfter   = 1 << 20   // bytes packed, before that is judged
)

// due says whether a dictionary is to be trained.
func (p *packers) due(now time.Time) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.training || now.Before(p.next) {
		return false
	}
	c := p.current
	if c == nil {
		return true
	}
	in, out := c.in.Load(), c.out.Load()
	return in >= worseAfter && float64(out) > worse*c.ratio*float64(in)
}

// begin reserves the training.
func (p *packers) begin(now time.Time) bool {
	if !p.due(now) {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.training {
		return false
	}
	p.training, p.next = true, now.Add(trainAgain)
	return true
}

func (p *packers) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.training = false
}

// trainFrom trains a dictionary from the payloads of changes, if there is none.
func (s *Store) trainFrom(changes []*Change) {
	if s.packs.now().version >= format.PackedByDict || len(changes) < trainMin || !s.packs.begin(s.db.opts.Clock.Now()) {
		return
	}
	defer s.packs.end()
	var sample sampler
	step := max(len(changes)/trainSamples, 1)
	for i := 0; i < len(changes); i += step {
		if c := changes[i]; c.payload != nil && c.by == nil {
			sample.add(c.payload)
		}
	}
	s.noteTraining(s.train(sample.got))
}

// trainable returns the claimed sources for which a training is due.
func (c *committer) trainable(now time.Time) (due []*Store) {
	if c.db.opts.Compression == NoCompression {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.stores {
		if s.metaNow().Items.Count >= trainMin && s.packs.due(now) {
			due = append(due, s)
		}
	}
	return due
}

// trainStored does so from what the file holds, if it is due.
func (s *Store) trainStored() {
	m := s.metaNow()
	if s.db.opts.Compression == NoCompression || m.Items.Count < trainMin || m.TypeHash != s.type_ ||
		!s.packs.begin(s.db.opts.Clock.Now()) {
		return
	}
	defer s.packs.end()
	var sample sampler
	var raws []raw
	err := s.view(func(m *sourceMeta, src sourceTx) error {
		raws = nil
		size, i, step := 0, 0, max(int(m.Items.Count)/trainSamples, 1)
		return src.gen(m.Generation).items.each(func(r raw) {
			if i++; i%step == 0 && size+len(r.v) <= trainBytes {
				raws = append(raws, raw{k: bytes.Clone(r.k), v: bytes.Clone(r.open())})
				size += len(r.v)
			}
		})
	})
	for _, rw := range raws {
		if _, r, err := format.ParseRecord(rw.k, rw.v); err == nil {
			if b, err := s.plain(r, nil); err == nil {
				sample.add(b)
			}
		}
	}
	if err == nil {
		err = s.train(sample.got)
	}
	s.noteTraining(err)
}

func (s *Store) noteTraining(err error) {
	if err != nil {
		s.db.log().V(1).Info("No dictionary was trained, payloads are packed as before", "source", s.source.String(), "reason", err.Error())
	}
}

type sampler struct {
	got  [][]byte
	size int
}

func (s *sampler) add(b []byte) {
	if s.size+len(b) <= trainBytes && len(s.got) < trainSamples {
		s.got, s.size = append(s.got, b), s.size+len(b)
	}
}

// train makes a dictionary of the samples and stores it, if it is worth it.
// Objects stored from then on are packed by it.
func (s *Store) train(samples [][]byte) error {
	var version uint32
	var n int
	err := s.view(func(m *sourceMeta, src sourceTx) error { version, n = src.nextDict(m); return nil })
	if err != nil {
		return err
	}
	if n >= dictsKept {
		return fmt.Errorf("the source has %d dictionaries", n)
	}
	version = s.packs.version(version)
	p, err := trainPacker(version, samples)
	if err != nil {
		return err
	}
	err = s.db.h.update(func(tx *bolt.Tx) error {
		src, ok := s.db.h.source(tx, s.id)
		if !ok {
			return fmt.Errorf("%w: %s", ErrNoSource, s.source)
		}
		m, err := src.meta()
		if err != nil {
			return err
		}
		if now, _ := src.nextDict(m); s.packs.version(now) != version {
			return fmt.Errorf("dictionary %d was not expected", now-1)
		}
		return src.putDict(version, dictValue{Dict: p.dict, Ratio: p.ratio, Trained: s.db.opts.Clock.Now().UnixNano()})
	}, func() {
		s.packs.mu.Lock()
		defer s.packs.mu.Unlock()
		s.packs.add(p)
	})
	if err == nil {
		s.db.log().V(1).Info("Trained a dictionary", "source", s.source.String(), "version", version, "bytes", len(p.dict),
			"samples", len(samples), "ratio", p.ratio)
	}
	return err
}

// trainPacker trains with three of four samples and measures with the others.
func trainPacker(version uint32, samples [][]byte) (p *packer, err error) {
	defer func() {
		if r := recover(); r != nil { // on data that the builder did not expect
			p, err = nil, fmt.Errorf("train: %v", r)
		}
	}()
	var with, others [][]byte
	for i, b := range samples {
		if i%4 == 3 {
			others = append(others, b)
		} else {
			with = append(with, b)
		}
	}
	if len(others) < 4 {
		return nil, fmt.Errorf("%d samples are too few", len(samples))
	}
	d, err := dict.BuildZstdDict(with, dict.Options{MaxDictSize: dictBytes, HashBytes: 6, ZstdDictID: version, ZstdLevel: zstd.SpeedFastest})
	if err != nil {
		return nil, fmt.Errorf("train: %w", err)
	}
	if p, err = newPacker(version, d); err != nil {
		return nil, err
	}
	in, by, without := 0, 0, 0
	size := func(p *packer, b []byte) int {
		packed := p.pack(b)
		if packed == nil {
			return len(b)
		}
		return len(packed)
	}
	for _, b := range others {
		in, by, without = in+len(b), by+size(p, b), without+size(plainPacker(), b)
	}
	if float64(by) > 0.9*float64(without) {
		return nil, fmt.Errorf("it would not pay: %d bytes, %d without it", by, without)
	}
	p.ratio = float64(by) / float64(in)
	p.in.Store(0)
	p.out.Store(0)
	return p, nil
}
