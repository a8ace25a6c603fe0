package format

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/cespare/xxhash/v2"
	"github.com/vmihailenco/msgpack/v5"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/index"
)

// recordVersion is the newest form of a record. docs/design/file.md, "Changing the
// form", says how to raise it.
const recordVersion = 2

// Values of Record.Packed: the number of the dictionary in package pack.
const (
	NotPacked  = 0
	Dictionary = 1
)

// MaxPayload is the size of the largest payload, with the index values of its record, in
// bytes. API servers take objects of some 1.5 MiB.
const MaxPayload = 32 << 20

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Record is one object as the file keeps it.
type Record struct {
	Codec                byte
	CRC                  uint32
	ResourceVersion, UID string
	Stored               int64  // unix ns
	Born                 uint64 // seq at which an object of this UID was first stored
	Values               []IndexValues
	key                  string // only if the item key is a hash
	Packed               uint32 // how the payload is packed
	Size                 int    // of the payload once unpacked, if it is packed
	Payload              []byte
	// Whole, unless nil, has HeadRoom bytes and then Payload. Encode then does not copy
	// the payload.
	Whole []byte
}

// HeadRoom is how many bytes to leave before an encoded object for the head of
// its record.
const HeadRoom = 192

// ZeroHead is an empty head, to append an object to.
var ZeroHead [HeadRoom]byte

// UnpackedSize is the size of the payload in the codec's form.
func (r *Record) UnpackedSize() int {
	if r.Packed != NotPacked {
		return r.Size
	}
	return len(r.Payload)
}

// IndexValues are the values of one object in one index.
type IndexValues struct {
	Name   string
	Values []string
}

// ValuesOf returns the values in the index called name.
func (r *Record) ValuesOf(name string) []string {
	for _, iv := range r.Values {
		if iv.Name == name {
			return iv.Values
		}
	}
	return nil
}

// Owner is the beginning of the sums of one source's records and blocks. So an old page,
// from when another source used it, counts as damage.
type Owner uint32

// OwnerOf is the Owner of the source with that ID.
func OwnerOf(id string) Owner { return Owner(crc32.Checksum([]byte(id), castagnoli)) }

// Encode returns the bytes of the record of key, and sets CRC. If Whole is set, the
// result lies in it and overwrites an earlier result.
func (r *Record) Encode(o Owner, key string) ([]byte, error) {
	size := HeadRoom
	if r.Whole == nil {
		size += len(r.Payload)
	}
	buf := bytes.NewBuffer(make([]byte, 0, size))
	buf.Write([]byte{recordVersion, r.Codec, 0, 0, 0, 0})
	enc := msgpack.GetEncoder()
	defer msgpack.PutEncoder(enc)
	enc.Reset(buf)
	e := &errEncoder{enc: enc}
	e.string(r.ResourceVersion)
	e.string(r.UID)
	e.uint(uint64(r.Stored))
	e.uint(r.Born)
	e.len(len(r.Values))
	for _, iv := range r.Values {
		e.string(iv.Name)
		e.len(len(iv.Values))
		for _, v := range iv.Values {
			e.string(v)
		}
	}
	if len(key) > index.MaxInline {
		e.string(key)
	} else {
		e.string("")
	}
	e.uint(uint64(r.Packed))
	if r.Packed != NotPacked {
		e.uint(uint64(r.Size))
	}
	if e.err != nil {
		return nil, fmt.Errorf("boltstore: encode record of %q: %w", key, e.err)
	}
	b := buf.Bytes()
	if r.Whole != nil && len(b) <= HeadRoom {
		at := HeadRoom - len(b)
		copy(r.Whole[at:], b)
		b = r.Whole[at:]
	} else {
		b = append(b, r.Payload...)
	}
	r.CRC = o.recordSum(key, b)
	binary.LittleEndian.PutUint32(b[2:6], r.CRC)
	return b, nil
}

func (o Owner) recordSum(key string, b []byte) uint32 {
	sum := crc32.Update(uint32(o), castagnoli, b[:2])
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

// ParseRecord verifies and parses the record b, found under itemKey. It also returns
// the object's key. The record aliases b.
func (o Owner) ParseRecord(itemKey, b []byte) (string, *Record, error) {
	key, inline, err := index.ParseKey(itemKey)
	if err != nil {
		return "", nil, fmt.Errorf("item key %.64x: %w: %v", itemKey, faults.ErrDamaged, err)
	}
	r, err := ParseUnverified(b)
	if err != nil {
		return key, nil, fmt.Errorf("record of %q: %w", key, err)
	}
	if !inline {
		key = r.key
		if !bytes.Equal(index.AppendKey(nil, key), itemKey) {
			return key, nil, fmt.Errorf("record of %q: %w: stored under another key", key, faults.ErrDamaged)
		}
	}
	if r.CRC != o.recordSum(key, b) {
		return key, nil, fmt.Errorf("record of %q: %w: checksum differs", key, faults.ErrDamaged)
	}
	return key, r, nil
}

// ParseUnverified parses the record b without verifying its sum. The result aliases b.
func ParseUnverified(b []byte) (*Record, error) {
	if len(b) < 7 {
		return nil, fmt.Errorf("%w: %d bytes", faults.ErrDamaged, len(b))
	}
	if b[0] != recordVersion {
		return nil, fmt.Errorf("%w: version %d", faults.ErrDamaged, b[0])
	}
	r := &Record{Codec: b[1], CRC: binary.LittleEndian.Uint32(b[2:6])}
	rd := bytes.NewReader(b[6:])
	dec := msgpack.GetDecoder()
	defer msgpack.PutDecoder(dec)
	dec.Reset(rd)
	d := &errDecoder{dec: dec, left: rd.Len}
	r.ResourceVersion = d.string()
	r.UID = d.string()
	r.Stored = int64(d.uint())
	r.Born = d.uint()
	if n := d.len(); n > 0 {
		r.Values = make([]IndexValues, n)
		for i := range r.Values {
			r.Values[i].Name = d.string()
			if n := d.len(); n > 0 {
				r.Values[i].Values = make([]string, n)
				for j := range r.Values[i].Values {
					r.Values[i].Values[j] = d.string()
				}
			}
		}
	}
	r.key = d.string()
	packed, size := d.uint(), uint64(0)
	if packed != NotPacked {
		size = d.uint()
	}
	if d.err == nil && (packed > Dictionary || size > MaxPayload) {
		d.err = fmt.Errorf("packed by %d, %d bytes", packed, size)
	}
	r.Packed, r.Size = uint32(packed), int(size)
	if d.err != nil {
		return nil, fmt.Errorf("%w: %v", faults.ErrDamaged, d.err)
	}
	r.Payload = b[len(b)-rd.Len():]
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

// len is the length of an array. A length above the number of bytes left is an
// error, so that damage cannot exhaust memory.
func (d *errDecoder) len() (n int) {
	if d.err == nil {
		n, d.err = d.dec.DecodeArrayLen()
		if d.err == nil && n > d.left() {
			n, d.err = 0, fmt.Errorf("array of %d in %d bytes", n, d.left())
		}
	}
	return n
}

// HashBytes is the part of an index entry, or of the key of a base, in their digest.
func HashBytes(b []byte) uint64 { return xxhash.Sum64(b) }

// HashRecord is the part of key's record in the digest of the objects.
func HashRecord(key string, r *Record) uint64 {
	var buf [256]byte
	b := AppendString(buf[:0], key)
	b = AppendString(b, r.UID)
	b = AppendString(b, r.ResourceVersion)
	return xxhash.Sum64(binary.LittleEndian.AppendUint32(b, r.CRC))
}
