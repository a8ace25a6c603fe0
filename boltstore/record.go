package boltstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/index"
)

const recordVersion = 2

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// record is a parsed record. payload aliases the bytes it was parsed from.
type record struct {
	codec   byte
	crc     uint32
	rv, uid string
	stored  int64  // unix ns
	born    uint64 // seq at which an object of this UID was first stored
	values  []indexValues
	key     string // set only where the item key is a hash
	packed  uint32 // how the payload is packed
	size    int    // of the payload once unpacked, if it is packed
	payload []byte
	// whole, if not nil, has recordRoom bytes and then the payload.
	whole []byte
}

// recordRoom is left before an encoded object for what comes before it in the
// record, so that it need not be copied there.
const recordRoom = 192

var noRoom [recordRoom]byte

// plainSize is the payload's size in the codec's form.
func (r *record) plainSize() int {
	if r.packed != packNot {
		return r.size
	}
	return len(r.payload)
}

// indexValues are the values of one object under one index.
type indexValues struct {
	name   string
	values []string
}

func (r *record) valuesOf(name string) []string {
	for _, iv := range r.values {
		if iv.name == name {
			return iv.values
		}
	}
	return nil
}

// encode returns the record's bytes for that key and sets its crc. They are in
// whole, if there is one: what was encoded there before is overwritten.
func (r *record) encode(key string) ([]byte, error) {
	size := recordRoom
	if r.whole == nil {
		size += len(r.payload)
	}
	buf := bytes.NewBuffer(make([]byte, 0, size))
	buf.Write([]byte{recordVersion, r.codec, 0, 0, 0, 0})
	enc := msgpack.GetEncoder()
	defer msgpack.PutEncoder(enc)
	enc.Reset(buf)
	e := &errEncoder{enc: enc}
	e.string(r.rv)
	e.string(r.uid)
	e.uint(uint64(r.stored))
	e.uint(r.born)
	e.len(len(r.values))
	for _, iv := range r.values {
		e.string(iv.name)
		e.len(len(iv.values))
		for _, v := range iv.values {
			e.string(v)
		}
	}
	if len(key) > index.MaxInline {
		e.string(key)
	} else {
		e.string("")
	}
	e.uint(uint64(r.packed))
	if r.packed != packNot {
		e.uint(uint64(r.size))
	}
	if e.err != nil {
		return nil, fmt.Errorf("boltstore: encode record of %q: %w", key, e.err)
	}
	b := buf.Bytes()
	if r.whole != nil && len(b) <= recordRoom {
		at := recordRoom - len(b)
		copy(r.whole[at:], b)
		b = r.whole[at:]
	} else {
		b = append(b, r.payload...)
	}
	r.crc = recordSum(key, b)
	binary.LittleEndian.PutUint32(b[2:6], r.crc)
	return b, nil
}

func recordSum(key string, b []byte) uint32 {
	sum := crc32.Update(0, castagnoli, b[:2])
	sum = crc32.Update(sum, castagnoli, []byte(key))
	return crc32.Update(sum, castagnoli, b[6:])
}

type errEncoder struct {
	enc *msgpack.Encoder
	err error
}

func (e *errEncoder) string(s string) { e.do(func() error { return e.enc.EncodeString(s) }) }
func (e *errEncoder) uint(n uint64)   { e.do(func() error { return e.enc.EncodeUint(n) }) }
func (e *errEncoder) len(n int)       { e.do(func() error { return e.enc.EncodeArrayLen(n) }) }
func (e *errEncoder) do(f func() error) {
	if e.err == nil {
		e.err = f()
	}
}

// parseRecord verifies and parses the record b found under itemKey, and says
// whose key it is. The result aliases b.
func parseRecord(itemKey, b []byte) (string, *record, error) {
	key, inline, err := index.ParseKey(itemKey)
	if err != nil {
		return "", nil, fmt.Errorf("item key %x: %w: %v", itemKey, faults.ErrDamaged, err)
	}
	r, err := parseRecordOf(b)
	if err != nil {
		return key, nil, fmt.Errorf("record of %q: %w", key, err)
	}
	if !inline {
		key = r.key
		if !bytes.Equal(index.AppendKey(nil, key), itemKey) {
			return key, nil, fmt.Errorf("record of %q: %w: stored under another key", key, faults.ErrDamaged)
		}
	}
	if recordSum(key, b) != r.crc {
		return key, nil, fmt.Errorf("record of %q: %w: checksum differs", key, faults.ErrDamaged)
	}
	return key, r, nil
}

// parseRecordOf parses b without verifying its checksum.
func parseRecordOf(b []byte) (*record, error) {
	if len(b) < 7 {
		return nil, fmt.Errorf("%w: %d bytes", faults.ErrDamaged, len(b))
	}
	if b[0] != recordVersion {
		return nil, fmt.Errorf("%w: version %d", faults.ErrDamaged, b[0])
	}
	r := &record{codec: b[1], crc: binary.LittleEndian.Uint32(b[2:6])}
	rd := bytes.NewReader(b[6:])
	dec := msgpack.GetDecoder()
	defer msgpack.PutDecoder(dec)
	dec.Reset(rd)
	d := &errDecoder{dec: dec, left: rd.Len}
	r.rv = d.string()
	r.uid = d.string()
	r.stored = int64(d.uint())
	r.born = d.uint()
	if n := d.len(); n > 0 {
		r.values = make([]indexValues, n)
		for i := range r.values {
			r.values[i].name = d.string()
			if n := d.len(); n > 0 {
				r.values[i].values = make([]string, n)
				for j := range r.values[i].values {
					r.values[i].values[j] = d.string()
				}
			}
		}
	}
	r.key = d.string()
	packed, size := d.uint(), uint64(0)
	if packed != packNot {
		size = d.uint()
	}
	if d.err == nil && (packed > math.MaxUint32 || size > packMax) {
		d.err = fmt.Errorf("packed by %d, %d bytes", packed, size)
	}
	r.packed, r.size = uint32(packed), int(size)
	if d.err != nil {
		return nil, fmt.Errorf("%w: %v", faults.ErrDamaged, d.err)
	}
	r.payload = b[len(b)-rd.Len():]
	return r, nil
}

type errDecoder struct {
	dec  *msgpack.Decoder
	left func() int
	err  error
}

func (d *errDecoder) string() (s string) {
	if d.err == nil {
		s, d.err = d.dec.DecodeString()
	}
	return s
}

func (d *errDecoder) uint() (n uint64) {
	if d.err == nil {
		n, d.err = d.dec.DecodeUint64()
	}
	return n
}

// len is an array's length; one longer than the bytes left is an error, so
// that damage cannot make us allocate.
func (d *errDecoder) len() (n int) {
	if d.err == nil {
		n, d.err = d.dec.DecodeArrayLen()
		if d.err == nil && n > d.left() {
			n, d.err = 0, fmt.Errorf("array of %d in %d bytes", n, d.left())
		}
	}
	return n
}

// withSum and checkSum frame a small value with its own CRC-32C.
func withSum(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func checkSum(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, fmt.Errorf("%w: %d bytes", faults.ErrDamaged, len(b))
	}
	data, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(data, castagnoli) != sum {
		return nil, fmt.Errorf("%w: checksum differs", faults.ErrDamaged)
	}
	return data, nil
}
