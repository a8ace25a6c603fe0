package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewake/kubewake/boltstore/internal/format"

	"github.com/klauspost/compress/zstd"
)

// Compression says how payloads are stored. Whatever it is, everything that
// the file holds can be read.
type Compression int

const (
	// NoCompression stores payloads as they are. Journal blocks are packed all
	// the same.
	NoCompression Compression = iota
	// Zstd packs each payload for itself, with a dictionary that is trained from
	// the source's own objects: the file and what is written shrink to about a
	// half, and every read and change takes more processor time (see
	// docs/benchmarks.md).
	Zstd
)

const (
	packMin      = 64   // a shorter payload is stored as it is
	packPlainMin = 1024 // so is one shorter than this where there is no dictionary
)

// packer packs and unpacks by one dictionary, which never changes. It may be
// used concurrently.
type packer struct {
	version uint32
	dict    []byte
	ratio   float64 // packed to plain bytes, when it was trained

	dec *zstd.Decoder
	enc func() *zstd.Encoder // made when first needed

	in, out atomic.Int64 // bytes that it has packed, and into how many
}

func newPacker(version uint32, dict []byte) (p *packer, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("dictionary %d: %w: %v", version, ErrDamaged, r)
		}
	}()
	n := min(runtime.GOMAXPROCS(0), 4)
	d := []zstd.DOption{zstd.WithDecoderConcurrency(n), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(format.MaxPayload)}
	e := []zstd.EOption{zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(n), zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(512 << 10), zstd.WithLowerEncoderMem(true)}
	if dict != nil {
		d, e = append(d, zstd.WithDecoderDicts(dict)), append(e, zstd.WithEncoderDict(dict))
	}
	p = &packer{version: version, dict: dict}
	if p.dec, err = zstd.NewReader(nil, d...); err != nil {
		return nil, fmt.Errorf("dictionary %d: %w: %v", version, ErrDamaged, err)
	}
	p.enc = sync.OnceValue(func() *zstd.Encoder {
		enc, _ := zstd.NewWriter(nil, e...) // the decoder has accepted the dictionary
		return enc
	})
	return p, nil
}

// pack returns nil where packing does not pay.
func (p *packer) pack(b []byte) []byte {
	if len(b) < packMin || p.version == format.PackedPlain && len(b) < packPlainMin {
		return nil
	}
	enc := p.enc()
	if enc == nil {
		return nil
	}
	packed := enc.EncodeAll(b, make([]byte, 0, len(b)/2))
	p.in.Add(int64(len(b)))
	p.out.Add(int64(len(packed)))
	if len(packed) > len(b)-len(b)/16 {
		return nil
	}
	return packed
}

func (p *packer) unpack(b []byte, size int, buf []byte) ([]byte, error) {
	if cap(buf) < size {
		buf = make([]byte, 0, min(size, 64<<20))
	}
	plain, err := p.dec.DecodeAll(b, buf[:0])
	if err != nil || len(plain) != size {
		return nil, fmt.Errorf("%w: cannot be unpacked: %d bytes of %d, %v", ErrDamaged, len(plain), size, err)
	}
	return plain, nil
}

// plainPacker is the one without a dictionary, for all files.
var plainPacker = sync.OnceValue(func() *packer {
	p, _ := newPacker(format.PackedPlain, nil)
	return p
})

// packers are a source's dictionaries. All stores of the source in a DB share
// them. A version never comes to mean another dictionary.
type packers struct {
	mu       sync.RWMutex
	all      map[uint32]*packer
	damaged  map[uint32]error
	current  *packer // the newest; nil without any
	last     uint32  // the highest version ever known
	training bool
	next     time.Time // no training before
}

// packers returns those of a source.
func (db *DB) packers(id string) *packers {
	db.mu.Lock()
	defer db.mu.Unlock()
	p := db.packs[id]
	if p == nil {
		p = newPackers()
		db.packs[id] = p
	}
	return p
}

func newPackers() *packers { return &packers{all: map[uint32]*packer{}, damaged: map[uint32]error{}} }

// load reads the dictionaries that are not known yet. One that is damaged, or
// whose key is, is left out: see needed.
func (p *packers) load(src sourceTx) error {
	b := src.root.Bucket(bucketDicts)
	if b == nil {
		return nil
	}
	dicts := src.dictBox(b)
	return b.ForEach(func(k, _ []byte) error {
		if len(k) != 4 {
			return nil
		}
		version := binary.BigEndian.Uint32(k)
		if known, _ := p.get(version); known != nil {
			return nil
		}
		var v dictValue
		var pk *packer
		err := format.Get(dicts, k, &v)
		if err == nil {
			pk, err = newPacker(version, v.Dict)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if err != nil {
			p.damaged[version] = fmt.Errorf("dictionary %d: %w", version, err)
			return nil
		}
		pk.ratio = v.Ratio
		p.add(pk)
		return nil
	})
}

// add is called with mu held.
func (p *packers) add(pk *packer) {
	p.all[pk.version] = pk
	p.last = max(p.last, pk.version)
	if p.current == nil || p.current.version < pk.version {
		p.current = pk
	}
}

// get returns a packer that can unpack that version.
func (p *packers) get(version uint32) (*packer, error) {
	if version == format.PackedPlain {
		return plainPacker(), nil
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if pk := p.all[version]; pk != nil {
		return pk, nil
	}
	if err := p.damaged[version]; err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: dictionary %d is missing", ErrDamaged, version)
}

// has says whether pk is still what its version means.
func (p *packers) has(pk *packer) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.all[pk.version] == pk
}

// now is the packer for what is to be stored.
func (p *packers) now() *packer {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.current != nil {
		return p.current
	}
	return plainPacker()
}

// forget trains anew; what was packed can still be unpacked.
func (p *packers) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current, p.next = nil, time.Time{}
}

// reset is for a source that begins anew, without dictionaries.
func (p *packers) reset() { p.become(newPackers()) }

// reload reads the dictionaries of a file that has been put in the place of
// another one. Readers see those of before or the new ones.
func (p *packers) reload(src sourceTx) error {
	fresh := newPackers()
	err := fresh.load(src)
	p.become(fresh)
	return err
}

func (p *packers) become(fresh *packers) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all, p.damaged, p.current, p.next = fresh.all, fresh.damaged, fresh.current, time.Time{}
	p.last = max(p.last, fresh.last)
}

// version is that of the next dictionary, if the file says next: no entry in
// memory is packed by another one of that version.
func (p *packers) version(next uint32) uint32 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return max(next, p.last+1)
}

// needed is the damage that makes records unreadable.
func (p *packers) needed(m *sourceMeta) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var errs []error
	for v, u := range m.Dicts {
		if u.Records > 0 && p.all[v] == nil {
			err := p.damaged[v]
			if err == nil {
				err = fmt.Errorf("%w: dictionary %d is missing", ErrDamaged, v)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// pack packs a change's payload as the options say.
func (s *Store) pack(c *Change) {
	if c.payload == nil || c.by != nil || s.db.opts.Compression == NoCompression {
		return
	}
	by := s.packs.now()
	if packed := by.pack(c.payload); packed != nil {
		c.by, c.size, c.payload, c.whole = by, len(c.payload), packed, nil
	}
}

// packAll packs the changes on all cores, by a dictionary trained from them if
// there is none yet.
func (s *Store) packAll(changes []*Change) {
	if s.db.opts.Compression == NoCompression {
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

// plain is a record's payload, unpacked into buf if it is packed and fits.
func (s *Store) plain(r *format.Record, buf []byte) ([]byte, error) {
	if r.Packed == format.NotPacked {
		return r.Payload, nil
	}
	p, err := s.packs.get(r.Packed)
	if err != nil {
		return nil, err
	}
	return p.unpack(r.Payload, r.Size, buf)
}

// plainDrafts unpacks the records of drafts. Blocks are packed as a whole,
// where an object's state before and after, which hardly differ, and objects
// of the same kind cost far less than each packed for itself.
func (s *Store) plainDrafts(drafts []format.Draft) []format.Draft {
	out := slices.Clone(drafts)
	for i := range out {
		if out[i].Unpacked {
			continue
		}
		prev := s.plainRaw(out[i].Key, out[i].Previous())
		out[i].Next = s.plainRaw(out[i].Key, out[i].Next)
		out[i].Prev = format.DiffOf(out[i].Next, prev)
	}
	return out
}

// plainRaw is a verified record with its payload unpacked, or as it is where
// that cannot be.
func (s *Store) plainRaw(key string, raw []byte) []byte {
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
	plain, err := r.Encode(key)
	if err != nil {
		return raw
	}
	return plain
}

// usable says whether the record's payload can be unpacked.
func (s *Store) usable(r *format.Record) error {
	if r.Packed == format.NotPacked {
		return nil
	}
	_, err := s.packs.get(r.Packed)
	return err
}

// payload gives a record the change's payload. A change that was prepared with
// a dictionary that the source no longer has is stored unpacked.
func (a *applier) payload(r *format.Record, c *Change) (err error) {
	r.Payload, r.Whole = c.payload, c.whole
	if c.by == nil {
		return nil
	}
	if c.by.version >= format.PackedByDict && !(a.src.hasDict(c.by.version) && a.s.packs.has(c.by)) {
		r.Payload, err = c.by.unpack(c.payload, c.size, nil)
		return err
	}
	r.Packed, r.Size = c.by.version, c.size
	return nil
}
