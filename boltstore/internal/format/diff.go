package format

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"sync"
)

// Diff is the difference between a record and a base, another state of the same object.
// nil is no record. The package comment has the form.
type Diff []byte

// DiffOf returns record as a diff from base. It retains neither.
func DiffOf(base, record []byte) Diff {
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
	if len(record) > len(base)+len(d) && len(base) > 0 { // Apply refuses a record that much larger than base and diff
		return DiffOf(nil, record)
	}
	return append(make(Diff, 0, len(d)), d...)
}

// places says where eight bytes lie in a base, for each offset that is a multiple of
// eight. The index is a hash of the bytes. The value is offset/8 + 1, and 0 means
// nowhere.
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

// next returns how many bytes from record[i] on are not in the base after j. at is the
// offset in the base of the bytes that follow them.
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

// shared is the length of the prefix that a and b share.
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

// Apply returns the record in new memory. It is nil if d is nil or was made from
// another base.
func (d Diff) Apply(base []byte) []byte {
	if !d.fits(base) {
		return nil
	}
	size, _ := binary.Uvarint(d)
	record := make([]byte, 0, size)
	d.pieces(base, func(b []byte) { record = append(record, b...) })
	return record
}

// fits says whether d is a record, and base its base.
func (d Diff) fits(base []byte) bool {
	size, _ := binary.Uvarint(d)
	left := size
	ok := d.pieces(base, func(b []byte) { left -= uint64(len(b)) })
	return ok && left == 0 && size <= uint64(len(base)+len(d))
}

// pieces calls give with the pieces of the record, in order, and says whether it
// could read all of them.
func (d Diff) pieces(base []byte, give func([]byte)) bool {
	r := Reader{B: d}
	r.Uvarint()
	for at := uint64(0); !r.Bad && len(r.B) > 0; {
		n, on, own := r.Uvarint(), r.varint(), r.Bytes()
		if r.Bad || at > uint64(len(base)) || n > uint64(len(base))-at {
			return false
		}
		give(base[at : at+n])
		give(own)
		at += n + uint64(on)
	}
	return !r.Bad
}
