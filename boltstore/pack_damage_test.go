package boltstore

import (
	"bytes"
	"errors"
	"testing"

	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// TestDamagedPacked flips each byte of packed payloads, with valid checksums. Payloads
// that unpack differently are damage, and nothing panics. So is an unknown dictionary.
func TestDamagedPacked(t *testing.T) {
	db := openTest(t, testPath(t), Options{Compression: CompressionZstd})
	s := claimTest(t, db, podClaim())
	objs := somePods(0, 100)
	relist(t, s, "100", RelistOptions{}, objs, 100)
	raws, _, err := s.builder.rawPage(nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	key, r, err := s.coder.owner.ParseRecord(raws[0].Key, raws[0].Stored)
	if err != nil || r.Packed != format.Dictionary {
		t.Fatalf("%+v %v", r, err)
	}
	for i := range r.Payload {
		bad := *r
		bad.Payload = bytes.Clone(r.Payload)
		bad.Payload[i] ^= 0x55
		raw, err := bad.Encode(s.coder.owner, key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.reader.decodeRaw(key, raw); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	for _, version := range []uint32{format.Dictionary + 1, 1 << 31} {
		bad := *r
		bad.Packed = version
		raw, err := bad.Encode(s.coder.owner, key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.reader.decodeRaw(key, raw); !errors.Is(err, ErrDamaged) {
			t.Fatalf("version %d: %v", version, err)
		}
	}
}
