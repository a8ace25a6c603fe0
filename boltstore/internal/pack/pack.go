// Package pack compresses the payloads of records with zstd, by dictionaries that
// are trained from a source's own objects.
//
// Each dictionary has a version, which records name. A version never stands for another
// dictionary, even if damage has destroyed the first one.
package pack

import (
	"bytes"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/format"
)

const (
	packMin      = 64   // bytes of the shortest payload that is packed with a dictionary
	packPlainMin = 1024 // and without one
)

// Packer packs and unpacks by one dictionary, which never changes. It is safe for
// concurrent use.
type Packer struct {
	Version uint32
	Dict    []byte
	Ratio   float64 // packed by unpacked bytes of the samples

	dec *zstd.Decoder
	enc func() *zstd.Encoder // made at its first use

	in, out atomic.Int64 // bytes given to Pack, and returned by zstd
}

func newPacker(version uint32, dict []byte) (p *Packer, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("dictionary %d: %w: %v", version, faults.ErrDamaged, r)
		}
	}()
	n := min(runtime.GOMAXPROCS(0), 4)
	d := []zstd.DOption{zstd.WithDecoderConcurrency(n), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(format.MaxPayload),
		zstd.WithDecodeAllCapLimit(true)}
	e := []zstd.EOption{zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(min(n, 2)), zstd.WithEncoderCRC(false),
		zstd.WithWindowSize(128 << 10), zstd.WithLowerEncoderMem(true)}
	if dict != nil {
		d, e = append(d, zstd.WithDecoderDicts(dict)), append(e, zstd.WithEncoderDict(dict))
	}
	p = &Packer{Version: version, Dict: dict}
	if p.dec, err = zstd.NewReader(nil, d...); err != nil {
		return nil, fmt.Errorf("dictionary %d: %w: %v", version, faults.ErrDamaged, err)
	}
	p.enc = sync.OnceValue(func() *zstd.Encoder {
		enc, _ := zstd.NewWriter(nil, e...) // the decoder has accepted the dictionary
		return enc
	})
	return p, nil
}

// Pack returns b packed, or nil if that does not save enough.
func (p *Packer) Pack(b []byte) []byte {
	if len(b) < packMin || p.Version == format.PackedPlain && len(b) < packPlainMin {
		return nil
	}
	enc := p.enc()
	if enc == nil {
		return nil
	}
	buf := packBufs.Get().(*[]byte)
	defer packBufs.Put(buf)
	*buf = enc.EncodeAll(b, (*buf)[:0])
	packed := *buf
	p.in.Add(int64(len(b)))
	p.out.Add(int64(len(packed)))
	if len(packed) > len(b)-len(b)/16 {
		return nil
	}
	return bytes.Clone(packed) // changes wait in memory: without spare room
}

var packBufs = sync.Pool{New: func() any { return new([]byte) }}

// Unpack returns the size bytes that b was packed from. They lie in buf if they
// fit there.
func (p *Packer) Unpack(b []byte, size int, buf []byte) ([]byte, error) {
	if cap(buf) < size {
		buf = make([]byte, 0, size)
	}
	plain, err := p.dec.DecodeAll(b, buf[:0:size])
	if err != nil || len(plain) != size {
		return nil, fmt.Errorf("%w: cannot be unpacked: %d bytes of %d, %v", faults.ErrDamaged, len(plain), size, err)
	}
	return plain, nil
}

// plainPacker is the Packer without a dictionary, for all files. It is made here, and not at
// its first use, with its channels: those that a synctest bubble makes are of no use outside
// it.
var plainPacker = func() *Packer {
	p, _ := newPacker(format.PackedPlain, nil)
	p.enc().EncodeAll(nil, nil)
	return p
}()

// Set is the dictionaries of one source. All stores of the source in a file share
// it. It is safe for concurrent use.
type Set struct {
	mu       sync.RWMutex
	all      map[uint32]*Packer
	damaged  map[uint32]error
	current  *Packer // the newest; nil without any
	last     uint32  // the highest version it ever had
	training bool
	next     time.Time // earliest time of the next training
}

// NewSet returns a Set without dictionaries.
func NewSet() *Set { return &Set{all: map[uint32]*Packer{}, damaged: map[uint32]error{}} }

// Load reads the dictionaries that the Set does not have. A damaged one is left
// out: see [Set.Get].
func (p *Set) Load(dicts Dicts) error {
	return dicts(func(version uint32, read func() (dict []byte, ratio float64, err error)) {
		if known, _ := p.Get(version); known != nil {
			return
		}
		var pk *Packer
		dict, ratio, err := read()
		if err == nil {
			pk, err = newPacker(version, dict)
		}
		if err != nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.damaged[version] = fmt.Errorf("dictionary %d: %w", version, err)
			return
		}
		pk.Ratio = ratio
		p.Add(pk)
	})
}

// Dicts calls fn with each dictionary in the file; read reads it.
type Dicts func(fn func(version uint32, read func() (dict []byte, ratio float64, err error))) error

// Add adds pk, and makes it the current one if its version is the highest.
func (p *Set) Add(pk *Packer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[pk.Version] = pk
	p.last = max(p.last, pk.Version)
	if p.current == nil || p.current.Version < pk.Version {
		p.current = pk
	}
}

// Get returns the Packer of that version. The error says that it is damaged or missing.
func (p *Set) Get(version uint32) (*Packer, error) {
	if version == format.PackedPlain {
		return plainPacker, nil
	}
	p.mu.RLock()
	defer p.mu.RUnlock()
	if pk := p.all[version]; pk != nil {
		return pk, nil
	}
	if err := p.damaged[version]; err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: dictionary %d is missing", faults.ErrDamaged, version)
}

// Has says whether pk still belongs to the Set.
func (p *Set) Has(pk *Packer) bool {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.all[pk.Version] == pk
}

// Current returns the Packer for new records.
func (p *Set) Current() *Packer {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.current != nil {
		return p.current
	}
	return plainPacker
}

// Forget stops the use of dictionaries for new records until another one is trained.
func (p *Set) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current, p.next = nil, time.Time{}
}

// Reset removes all dictionaries. Their versions are not used again.
func (p *Set) Reset() { p.become(NewSet()) }

// Reload replaces the dictionaries by those of a new file, at once for readers.
func (p *Set) Reload(dicts Dicts) error {
	fresh := NewSet()
	err := fresh.Load(dicts)
	p.become(fresh)
	return err
}

func (p *Set) become(fresh *Set) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all, p.damaged, p.current, p.next = fresh.all, fresh.damaged, fresh.current, time.Time{}
	p.last = max(p.last, fresh.last)
}

// NextVersion returns the version for the next dictionary: next, which the file
// says, or a higher one if the Set knew a dictionary that the file has lost.
func (p *Set) NextVersion(next uint32) uint32 {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return max(next, p.last+1)
}

// Dicts returns the dictionaries by version.
func (p *Set) Dicts() map[uint32][]byte {
	p.mu.RLock()
	defer p.mu.RUnlock()
	all := map[uint32][]byte{}
	for v, pk := range p.all {
		all[v] = pk.Dict
	}
	return all
}
