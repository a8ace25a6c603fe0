package format

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/vmihailenco/msgpack/v5"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// WithSum appends a CRC-32C of b to b.
func WithSum(b []byte) []byte {
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// CheckSum returns the bytes that [WithSum] was given, or [faults.ErrDamaged].
func CheckSum(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, fmt.Errorf("%w: %d bytes", faults.ErrDamaged, len(b))
	}
	data, sum := b[:len(b)-4], binary.LittleEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(data, castagnoli) != sum {
		return nil, fmt.Errorf("%w: checksum differs", faults.ErrDamaged)
	}
	return data, nil
}

// Put stores v at key, in the form of [Encode].
func Put(b interface{ Put(k, v []byte) error }, key []byte, v any) error {
	data, err := Encode(key, v)
	if err != nil {
		return err
	}
	return b.Put(key, data)
}

// Encode returns v in msgpack with a sum. key is for the error.
func Encode(key []byte, v any) ([]byte, error) {
	var buf bytes.Buffer
	if err := msgpack.NewEncoder(&buf).Encode(v); err != nil {
		return nil, fmt.Errorf("boltstore: encode %s: %w", key, err)
	}
	return WithSum(buf.Bytes()), nil
}

// Get reads the value at key into v.
func Get(b interface{ Get(k []byte) []byte }, key []byte, v any) error {
	if err := Decode(b.Get(key), v); err != nil {
		return fmt.Errorf("boltstore: %s: %w", key, err)
	}
	return nil
}

// Decode reads raw, which [Encode] made, into v.
func Decode(raw []byte, v any) error {
	data, err := CheckSum(raw)
	if err != nil {
		return err
	}
	return Unmarshal(data, v)
}

// Unmarshal reads data, which has no checksum, into v. It first walks over data: the
// library makes room for as many elements of a slice as data says that there are.
func Unmarshal(data []byte, v any) error {
	err := msgpack.NewDecoder(bytes.NewReader(data)).Skip()
	if err == nil {
		err = msgpack.Unmarshal(data, v)
	}
	if err != nil {
		return fmt.Errorf("%w: %v", faults.ErrDamaged, err)
	}
	return nil
}

// AppendString appends s with its length before it.
func AppendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
