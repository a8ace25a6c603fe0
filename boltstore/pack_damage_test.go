package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// TestDictionaryGoneMeanwhile: a change is stored even if the dictionary that packed it
// was set aside with the source's contents.
func TestDictionaryGoneMeanwhile(t *testing.T) {
	db := openTest(t, testPath(t), Options{Compression: CompressionZstd})
	s := claimTest(t, db, podClaim())
	objs := somePods(0, 100)
	relist(t, s, "100", RelistOptions{}, objs, 100)
	c, err := s.Prepare(cache.Added, objs[0])
	if err != nil || c.by == nil || c.by.Version != 2 {
		t.Fatalf("%+v %v", c, err)
	}
	if err := s.SetAside(); err != nil {
		t.Fatal(err)
	}
	if err := s.write(&Batch{Changes: []*Change{c}}); err != nil {
		t.Fatal(err)
	}
	if by := packedBy(t, s); by[format.NotPacked] != 1 {
		t.Fatalf("packed by %v", by)
	}
	serves(t, s, objs[:1])
	// The next dictionary is not taken for the one that was set aside.
	relist(t, s, "100", RelistOptions{}, objs, 100)
	if got := dictVersions(t, s); len(got) != 1 || got[0] != 3 {
		t.Fatalf("dictionaries %v", got)
	}
	serves(t, s, objs)
}

// TestDamagedDictionary: with a damaged dictionary nothing wrong is served, the source
// says so, and a relist heals it.
func TestDamagedDictionary(t *testing.T) {
	objs := somePods(0, 100)
	for name, damage := range map[string]func(b *bolt.Bucket) error{
		"flipped": func(b *bolt.Bucket) error {
			v := bytes.Clone(b.Get(u32(2)))
			v[len(v)/2] ^= 1
			return b.Put(u32(2), v)
		},
		"cut":     func(b *bolt.Bucket) error { return b.Put(u32(2), b.Get(u32(2))[:10]) },
		"empty":   func(b *bolt.Bucket) error { return b.Put(u32(2), nil) },
		"missing": func(b *bolt.Bucket) error { return b.Delete(u32(2)) },
		"no dictionary, with a right sum": func(b *bolt.Bucket) error {
			return format.Put(b, u32(2), dictValue{Dict: []byte("no dictionary")})
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := testPath(t)
			db := openTest(t, path, Options{Compression: CompressionZstd})
			s := claimTest(t, db, podClaim())
			relist(t, s, "100", RelistOptions{}, objs, 100)
			closeTest(t, db)
			other, err := bolt.Open(path, 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = other.Update(func(tx *bolt.Tx) error {
				return damage(tx.Bucket(layout.BucketSources).Bucket([]byte(pods.ID())).Bucket(layout.BucketDicts))
			})
			if err := errors.Join(err, other.Close()); err != nil {
				t.Fatal(err)
			}
			db = openTest(t, path, Options{Compression: CompressionZstd})
			if r, err := db.Check(); err != nil || r.Sound() || !strings.Contains(fmt.Sprint(r.Sources[0].Problems), "dictionary 2") {
				t.Fatalf("check: %+v %v", r, err)
			}
			s = claimTest(t, db, podClaim())
			if err := s.Err(); !errors.Is(err, ErrDamaged) {
				t.Fatalf("it says %v", err)
			}
			if got, err := s.ListErr(); len(got) != 0 || !errors.Is(err, ErrDamaged) {
				t.Fatalf("%d objects, %v", len(got), err)
			}
			if _, _, err := s.Get(objs[0]); !errors.Is(err, ErrDamaged) {
				t.Fatalf("get: %v", err)
			}
			relist(t, s, "100", RelistOptions{}, objs, 100)
			if s.Err() != nil {
				t.Fatalf("after a relist: %v", s.Err())
			}
			serves(t, s, objs)
			if r, err := db.Check(); err != nil || !r.Sound() {
				t.Fatalf("check: %+v %v", r, err)
			}
			closeTest(t, db)
			db = openTest(t, path, Options{Compression: CompressionZstd})
			s = claimTest(t, db, podClaim())
			serves(t, s, objs)
		})
	}
}

// TestDamagedPacked flips each byte of packed payloads, with valid checksums. Payloads
// that unpack differently are damage, and nothing panics.
func TestDamagedPacked(t *testing.T) {
	db := openTest(t, testPath(t), Options{Compression: CompressionZstd})
	s := claimTest(t, db, podClaim())
	objs := somePods(0, 100)
	relist(t, s, "100", RelistOptions{}, objs, 100)
	raws, _, _, _, err := s.indexing().rawPage(s.metaNow, nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	key, r, err := s.owner.ParseRecord(raws[0].Key, raws[0].Stored)
	if err != nil || r.Packed != 2 {
		t.Fatalf("%+v %v", r, err)
	}
	for i := range r.Payload {
		bad := *r
		bad.Payload = bytes.Clone(r.Payload)
		bad.Payload[i] ^= 0x55
		raw, err := bad.Encode(s.owner, key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.reading().decodeRaw(key, raw); err != nil && !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	for _, version := range []uint32{format.PackedPlain, 3, 1 << 31} {
		bad := *r
		bad.Packed = version
		raw, err := bad.Encode(s.owner, key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.reading().decodeRaw(key, raw); !errors.Is(err, ErrDamaged) {
			t.Fatalf("version %d: %v", version, err)
		}
	}
}
