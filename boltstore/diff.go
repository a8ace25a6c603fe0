package boltstore

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"sync"
)

// diff is a record told by a base, another state of the same object: what they
// share is left out. nil is no record.
//
// It is the record's length (uvarint) and then, until that is reached: how many
// bytes to copy from the base, how far to go on in it from there (varint), how
// many of the record's own follow (uvarint), and these.
type diff []byte

// diffOf keeps neither base nor record.
func diffOf(base, record []byte) diff {
	if record == nil {
		return nil
	}
	var room [512]byte
	d := binary.AppendUvarint(room[:0], uint64(len(record)))
	var places *places
	for i, j := 0, 0; i < len(record); {
		n := shared(base[j:], record[i:])
		i, j = i+n, j+n
		if places == nil && i < len(record) && len(base) > 0 {
			places = placesOf(base)
		}
		own, at := places.next(base, j, record, i)
		d = binary.AppendUvarint(d, uint64(n))
		d = binary.AppendVarint(d, int64(at-j))
		d = binary.AppendUvarint(d, uint64(own))
		d = append(d, record[i:i+own]...)
		i, j = i+own, at
	}
	if places != nil {
		placesPool.Put(places)
	}
	if len(record) > len(base)+len(d) && len(base) > 0 { // no diff is read that tells of so much
		return diffOf(nil, record)
	}
	return append(make(diff, 0, len(d)), d...)
}

// places says where in a base eight bytes are found, of every place that is a
// multiple of eight: by hash, one above place/8.
type places [1 << 10]uint16

var placesPool = sync.Pool{New: func() any { return new(places) }}

func placesOf(base []byte) *places {
	p := placesPool.Get().(*places)
	*p = places{}
	for at := 0; at+8 <= len(base) && at < 8*math.MaxUint16; at += 8 {
		p[hash8(binary.LittleEndian.Uint64(base[at:]))] = uint16(at/8 + 1)
	}
	return p
}

func hash8(x uint64) uint64 { return x * 0x9E3779B97F4A7C15 >> (64 - 10) }

// next says how many bytes from record[i] on are its own, and where in the base
// it goes on with what follows them. What is the same is looked for behind j.
func (p *places) next(base []byte, j int, record []byte, i int) (own, at int) {
	if p == nil {
		return len(record) - i, j
	}
	for k := i; k+8 <= len(record); k++ {
		x := binary.LittleEndian.Uint64(record[k:])
		if at := j + k - i; at+8 <= len(base) && binary.LittleEndian.Uint64(base[at:]) == x {
			return k - i, at
		}
		if at := 8 * (int(p[hash8(x)]) - 1); at >= 0 && binary.LittleEndian.Uint64(base[at:]) == x {
			for k > i && at > 0 && record[k-1] == base[at-1] {
				k, at = k-1, at-1
			}
			return k - i, at
		}
	}
	return len(record) - i, j
}

// shared is how many bytes a and b begin with that are the same.
func shared(a, b []byte) (n int) {
	a, b = a[:min(len(a), len(b))], b[:min(len(a), len(b))]
	for len(a)-n >= 256 && bytes.Equal(a[n:n+256], b[n:n+256]) {
		n += 256
	}
	for len(a)-n >= 8 {
		if x := binary.LittleEndian.Uint64(a[n:]) ^ binary.LittleEndian.Uint64(b[n:]); x != 0 {
			return n + bits.TrailingZeros64(x)/8
		}
		n += 8
	}
	for n < len(a) && a[n] == b[n] {
		n++
	}
	return n
}

// record that the diff tells, in memory of its own; nil also where it is not
// one of this base.
func (d diff) record(base []byte) []byte {
	if !d.fits(base) {
		return nil
	}
	size, _ := binary.Uvarint(d)
	record := make([]byte, 0, size)
	d.pieces(base, func(b []byte) { record = append(record, b...) })
	return record
}

// fits says whether there is a record, and this is its base.
func (d diff) fits(base []byte) bool {
	size, _ := binary.Uvarint(d)
	left := size
	ok := d.pieces(base, func(b []byte) { left -= uint64(len(b)) })
	return ok && left == 0 && size <= uint64(len(base)+len(d))
}

// pieces gives what the record consists of, in order, and says whether all of
// it could be read.
func (d diff) pieces(base []byte, give func([]byte)) bool {
	r := blockReader{b: d}
	r.uvarint()
	for at := uint64(0); !r.bad && len(r.b) > 0; {
		n, on, own := r.uvarint(), r.varint(), r.bytes()
		if r.bad || at > uint64(len(base)) || n > uint64(len(base))-at {
			return false
		}
		give(base[at : at+n])
		give(own)
		at += n + uint64(on)
	}
	return !r.bad
}
