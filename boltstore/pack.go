package boltstore

import (
	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/pack"
)

// Compression says how payloads are stored. Any program can read either form.
type Compression int

const (
	// CompressionNone stores payloads as they are. Journal blocks are compressed all
	// the same.
	CompressionNone Compression = iota
	// CompressionZstd packs each payload separately, with a dictionary of common objects
	// that is part of this package. Pods shrink to less than half, in the file and in writes.
	// Every read and change takes more processor time (see docs/benchmarks.md).
	CompressionZstd
)

// pack packs a change's payload if the options ask for it.
func (cd *coder) pack(c *Change) {
	if c.payload == nil || c.size > 0 || !cd.packs {
		return
	}
	if packed := pack.Pack(c.payload); packed != nil {
		c.size, c.payload, c.whole = len(c.payload), packed, nil
	}
}

// fill gives a record the change's payload.
func (c *Change) fill(r *format.Record) {
	if r.Payload, r.Whole = c.payload, c.whole; c.size > 0 {
		r.Packed, r.Size = format.Dictionary, c.size
	}
}

// plain returns a record's payload, unpacked. It uses buf if the payload is packed and
// fits.
func plain(r *format.Record, buf []byte) ([]byte, error) {
	if r.Packed == format.NotPacked {
		return r.Payload, nil
	}
	return pack.Unpack(r.Payload, r.Size, buf)
}

// plainDrafts returns the first drafts, as many as share a block, with their records
// unpacked. A block is compressed as a whole: states of one object, and objects of one
// kind, then cost far less than each packed separately.
func plainDrafts(o format.Owner, drafts []format.Draft) (out []format.Draft) {
	for i, size := 0, 0; i < min(len(drafts), format.MaxEntries) && size < format.BlockBytes; i++ {
		d := drafts[i]
		if !d.Unpacked {
			prev := plainRaw(o, d.Key, d.Previous())
			d.Next = plainRaw(o, d.Key, d.Next)
			d.Prev = format.DiffOf(d.Next, prev)
		}
		size += len(d.Next) + len(d.Prev)
		out = append(out, d)
	}
	return out
}

// plainRaw returns a verified record with its payload unpacked. It returns the record
// as it is if that fails.
func plainRaw(o format.Owner, key string, raw []byte) []byte {
	if raw == nil {
		return nil
	}
	r, err := format.ParseUnverified(raw)
	if err != nil || r.Packed == format.NotPacked {
		return raw
	}
	buf := plainBufs.Get().(*[]byte)
	defer plainBufs.Put(buf)
	payload, err := plain(r, *buf)
	if err != nil {
		return raw
	}
	*buf = payload
	r.Payload, r.Packed, r.Size = payload, format.NotPacked, 0
	unpacked, err := r.Encode(o, key)
	if err != nil {
		return raw
	}
	return unpacked
}
