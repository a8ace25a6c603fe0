// Package index turns index values and keys into bbolt keys and back. bbolt
// refuses empty keys and keys of more than 32 KiB; index values and object
// keys may be anything.
//
// # Form
//
// An item key, under which an object is found:
//
//	0x01 key                 if the key has at most MaxInline bytes
//	0x02 SHA-256(key)        else; the caller keeps the key with the object
//
// An entry, which says that the object at key has value:
//
//	0x01 escape(value) 0x00 0x00  item key    if the value has at most MaxInline bytes
//	0x02 SHA-256(value)           item key    else
//
// where escape turns 0x00 into 0x00 0xFF, as FoundationDB's tuple layer does. So inline
// keys and inline values are in byte order, and no entry's value part is the beginning
// of another's. What bbolt stores at an entry is empty. But if a part of the entry is a
// hash, it has the index value and the key in full, each with its length as a uvarint
// before it.
package index

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
)

// MaxInline is the length in bytes up to which a key or value is stored as it
// is. Names of Kubernetes objects are shorter.
const MaxInline = 512

const (
	inline = 0x01
	hashed = 0x02
)

// Hashed is the place at which the item keys that are hashes begin. All others come before
// it, in the order of their keys.
var Hashed = []byte{hashed}

// ErrMalformed is returned for bytes that this package did not make.
var ErrMalformed = errors.New("index: malformed entry")

// AppendKey appends the item key of key to dst.
func AppendKey(dst []byte, key string) []byte {
	if len(key) <= MaxInline {
		return append(append(dst, inline), key...)
	}
	return appendHash(dst, key)
}

// From is the place at which a walk over the item keys of key and of all greater keys
// begins. Those that are hashes lie behind [Hashed], in no order of keys. If key is longer
// than MaxInline, From cuts it, and the cut key may come first.
func From(key string) []byte { return AppendKey(nil, key[:min(len(key), MaxInline)]) }

func appendHash(dst []byte, s string) []byte {
	sum := sha256.Sum256([]byte(s))
	return append(append(dst, hashed), sum[:]...)
}

// ParseKey returns the key of an item key. isInline is false if the item key has only
// the key's hash.
func ParseKey(b []byte) (key string, isInline bool, err error) {
	switch {
	case len(b) >= 1 && b[0] == inline && len(b) <= MaxInline+1:
		return string(b[1:]), true, nil
	case len(b) == 1+sha256.Size && b[0] == hashed:
		return "", false, nil
	}
	return "", false, ErrMalformed
}

// Prefix appends the value part of value's entries to dst. Exactly these entries begin
// with it.
func Prefix(dst []byte, value string) []byte {
	if len(value) > MaxInline {
		return appendHash(dst, value)
	}
	dst = append(dst, inline)
	for i := range len(value) {
		if dst = append(dst, value[i]); value[i] == 0 {
			dst = append(dst, 0xFF)
		}
	}
	return append(dst, 0, 0)
}

// AppendEntry appends the entry (value, key) to dst.
func AppendEntry(dst []byte, value, key string) []byte {
	return AppendKey(Prefix(dst, value), key)
}

// EntryData returns what is stored at the entry (value, key): nil, unless a part of the
// entry is a hash.
func EntryData(value, key string) []byte {
	if len(value) <= MaxInline && len(key) <= MaxInline {
		return nil
	}
	b := binary.AppendUvarint(nil, uint64(len(value)))
	b = append(b, value...)
	b = binary.AppendUvarint(b, uint64(len(key)))
	return append(b, key...)
}

// ParseEntry returns the value and the key of entry k, at which v is stored.
func ParseEntry(k, v []byte) (value, key string, err error) {
	value, rest, valueInline, err := parseValue(k)
	if err != nil {
		return "", "", err
	}
	key, keyInline, err := ParseKey(rest)
	switch {
	case err != nil:
		return "", "", err
	case valueInline && keyInline:
		if len(v) > 0 {
			return "", "", ErrMalformed
		}
		return value, key, nil
	}
	if value, v, err = cutString(v); err != nil {
		return "", "", err
	}
	if key, v, err = cutString(v); err != nil || len(v) > 0 || !bytes.Equal(AppendEntry(nil, value, key), k) {
		return "", "", ErrMalformed
	}
	return value, key, nil
}

func parseValue(k []byte) (value string, rest []byte, isInline bool, err error) {
	if len(k) > sha256.Size && k[0] == hashed {
		return "", k[1+sha256.Size:], false, nil
	}
	if len(k) == 0 || k[0] != inline {
		return "", nil, false, ErrMalformed
	}
	var buf []byte
	for i := 1; i+1 < len(k); i++ {
		switch {
		case k[i] != 0:
			buf = append(buf, k[i])
		case k[i+1] == 0xFF:
			buf = append(buf, 0)
			i++
		case k[i+1] == 0 && len(buf) <= MaxInline:
			return string(buf), k[i+2:], true, nil
		default:
			return "", nil, false, ErrMalformed
		}
	}
	return "", nil, false, ErrMalformed
}

func cutString(b []byte) (string, []byte, error) {
	n, m := binary.Uvarint(b)
	if m <= 0 || n > uint64(len(b)-m) {
		return "", nil, ErrMalformed
	}
	end := m + int(n)
	return string(b[m:end]), b[end:], nil
}

// Next returns the smallest byte string that is greater than all that begin
// with prefix, which must have a byte other than 0xFF.
func Next(prefix []byte) []byte {
	next := bytes.TrimRight(prefix, "\xff")
	next = bytes.Clone(next)
	next[len(next)-1]++
	return next
}

// few is up to how many values are compared one by one. An object may have thousands.
const few = 32

// Diff compares two sets of values, which may be in any order and have repeats. removed
// has the values of old that are not in new, added those of new that are not in old.
func Diff(old, new []string) (removed, added []string) {
	return missing(old, new), missing(new, old)
}

func missing(from, in []string) (out []string) {
	if len(from)+len(in) > few {
		skip := make(map[string]bool, len(in))
		for _, v := range in {
			skip[v] = true
		}
		for _, v := range from {
			if !skip[v] {
				skip[v] = true
				out = append(out, v)
			}
		}
		return out
	}
	for _, v := range from {
		if !slices.Contains(in, v) && !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return out
}
