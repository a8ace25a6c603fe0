package boltstore

import (
	"encoding/binary"
	"errors"
	"runtime"
	"sync"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pack"
)

// Compression says how payloads are stored. Any program can read either form.
type Compression int

const (
	// CompressionNone stores payloads as they are. Journal blocks are compressed all
	// the same.
	CompressionNone Compression = iota
	// CompressionZstd packs each payload separately, with a dictionary that is trained
	// from the source's own objects. Pods shrink to a third, in the file and in writes.
	// Every read and change takes more processor time (see docs/benchmarks.md).
	CompressionZstd
)

// packers returns the packers of a source.
func (db *DB) packers(id string) *pack.Set {
	db.mu.Lock()
	defer db.mu.Unlock()
	p := db.packs[id]
	if p == nil {
		p = pack.NewSet()
		db.packs[id] = p
	}
	return p
}

// pack packs a change's payload if the options ask for it.
func (s packing) pack(c *Change) {
	if c.payload == nil || c.by != nil || s.db.opts.Compression == CompressionNone {
		return
	}
	by := s.packs.Current()
	if packed := by.Pack(c.payload); packed != nil {
		c.by, c.size, c.payload, c.whole = by, len(c.payload), packed, nil
	}
}

// packAll packs the changes on all cores. It first trains a dictionary from them if
// there is none yet.
func (s packing) packAll(changes []*Change) {
	if s.db.opts.Compression == CompressionNone {
		return
	}
	s.trainFrom(changes)
	workers := min(runtime.GOMAXPROCS(0), len(changes)/16+1)
	var wg sync.WaitGroup
	one := func(w int) {
		for i := w; i < len(changes); i += workers {
			s.pack(changes[i])
		}
	}
	for w := 1; w < workers; w++ {
		wg.Go(func() { one(w) })
	}
	one(0)
	wg.Wait()
}

// plain returns a record's payload, unpacked. It uses buf if the payload is packed and
// fits.
func (s packing) plain(r *format.Record, buf []byte) ([]byte, error) {
	if r.Packed == format.NotPacked {
		return r.Payload, nil
	}
	p, err := s.packs.Get(r.Packed)
	if err != nil {
		return nil, err
	}
	return p.Unpack(r.Payload, r.Size, buf)
}

// plainDrafts returns the first drafts, as many as share a block, with their records
// unpacked. A block is compressed as a whole: states of one
// object, and objects of one kind, then cost far less than each packed separately.
func (s packing) plainDrafts(drafts []format.Draft) (out []format.Draft) {
	for i, size := 0, 0; i < min(len(drafts), format.MaxEntries) && size < format.BlockBytes; i++ {
		d := drafts[i]
		if !d.Unpacked {
			prev := s.plainRaw(d.Key, d.Previous())
			d.Next = s.plainRaw(d.Key, d.Next)
			d.Prev = format.DiffOf(d.Next, prev)
		}
		size += len(d.Next) + len(d.Prev)
		out = append(out, d)
	}
	return out
}

// plainRaw returns a verified record with its payload unpacked. It returns the record
// as it is if that fails.
func (s packing) plainRaw(key string, raw []byte) []byte {
	if raw == nil {
		return nil
	}
	r, err := format.ParseUnverified(raw)
	if err != nil || r.Packed == format.NotPacked {
		return raw
	}
	buf := plainBufs.Get().(*[]byte)
	defer plainBufs.Put(buf)
	payload, err := s.plain(r, *buf)
	if err != nil {
		return raw
	}
	*buf = payload
	r.Payload, r.Packed, r.Size = payload, format.NotPacked, 0
	plain, err := r.Encode(s.owner, key)
	if err != nil {
		return raw
	}
	return plain
}

// usable returns an error if the record's payload cannot be unpacked.
func (s packing) usable(r *format.Record) error {
	if r.Packed == format.NotPacked {
		return nil
	}
	_, err := s.packs.Get(r.Packed)
	return err
}

// payload gives a record the change's payload. If the source no longer has the
// dictionary that packed it, the payload is stored unpacked.
func (a *applier) payload(r *format.Record, c *Change) (err error) {
	r.Payload, r.Whole = c.payload, c.whole
	if c.by == nil {
		return nil
	}
	if c.by.Version >= format.PackedByDict && !(a.src.hasDict(c.by.Version) && a.s.packs.Has(c.by)) {
		r.Payload, err = c.by.Unpack(c.payload, c.size, nil)
		return err
	}
	r.Packed, r.Size = c.by.Version, c.size
	return nil
}

// dictionaries reads a source's dictionaries.
func (t sourceTx) dictionaries(fn func(version uint32, read func() ([]byte, float64, error))) error {
	b := t.Root.Bucket(layout.BucketDicts)
	if b == nil {
		return nil
	}
	dicts := t.DictBox(b)
	return b.ForEach(func(k, _ []byte) error {
		if len(k) != 4 {
			return nil
		}
		fn(binary.BigEndian.Uint32(k), func() ([]byte, float64, error) {
			var v dictValue
			err := format.Get(dicts, k, &v)
			return v.Dict, v.Ratio, err
		})
		return nil
	})
}

// neededDicts returns an error if a dictionary that records need is missing.
func (m *sourceMeta) neededDicts(p *pack.Set) error {
	var errs []error
	for v, u := range m.Dicts {
		if u.Records > 0 {
			_, err := p.Get(v)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// packing is the part of a Store that packs payloads and trains dictionaries.
type packing struct{ *Store }

func (s *Store) packing() packing { return packing{s} }
