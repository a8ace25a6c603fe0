package boltstore

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"k8s.io/client-go/tools/cache"
)

// The fuzz targets of what the file holds. Each is given bytes whose checksum
// is right, which damage does not have, but what is read is to be safe without.
// What they have found interesting is kept below testdata/fuzz.

func fuzzSeed(f *testing.F, v any) []byte {
	f.Helper()
	b, err := msgpack.Marshal(v)
	if err != nil {
		f.Fatal(err)
	}
	return b
}

// again encodes v and parses that: it must come out the same.
func again[T any](t *testing.T, v *T, parse func([]byte) (*T, error), prefix []byte) {
	t.Helper()
	b, err := msgpack.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(withSum(append(prefix, b...)))
	if err != nil {
		t.Fatal(err)
	}
	if b2, err := msgpack.Marshal(got); err != nil || len(b) != len(b2) { // maps have no order
		t.Fatalf("%v: %+v became %+v", err, v, got)
	}
}

func FuzzMeta(f *testing.F) {
	m := (&sourceMeta{Source: podSource, ResourceVersion: "77", Seq: 5, Told: 3, Generation: 2}).clone()
	m.Indices["node"] = indexMeta{Version: "1", Complete: true, Digest: digest{3, 4}}
	m.useDict(2, 7)
	f.Add(fuzzSeed(f, m))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMeta(withSum(b))
		if err != nil {
			return
		}
		m.state(newDevice(Options{}.withDefaults()))
		again(t, m, parseMeta, nil)
	})
}

func FuzzPosition(f *testing.F) {
	st := handlerState{Epoch: 1, Cursor: 9, Pending: map[string]uint64{"a/b": 7}, Replaying: true, Next: []byte("12345678place"), Shown: []string{"a/c"}}
	f.Add(append(u64(6), fuzzSeed(f, &st)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := parseHandlerState(withSum(b))
		if err != nil {
			return
		}
		if p := st.position(nil); p.low() > p.Cursor {
			t.Fatalf("%d is above the cursor %d", p.low(), p.Cursor)
		}
		parseMarks(st.Next)
		again(t, st, parseHandlerState, u64(st.mark))
	})
}

func FuzzParked(f *testing.F) {
	p := &parked{Key: "a/b"}
	p.fold(1, draft{typ: cache.Updated, time: 5, prev: diffOf([]byte("next"), []byte("prev")), next: []byte("next")}, 0)
	f.Add(fuzzSeed(f, p))
	p.fold(2, draft{typ: cache.Deleted, time: 6, prev: diffOf(nil, []byte("next"))}, 0)
	f.Add(fuzzSeed(f, p))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseParked(withSum(b))
		if err != nil {
			return
		}
		again(t, p, parseParked, nil)
		gone := len(p.Gone)
		p.drafts(0)
		for seq, end := p.Last+1, p.Last+4; seq != end; seq++ {
			p.fold(seq, draft{typ: cache.Deleted, prev: diffOf(nil, []byte("x"))}, 0)
		}
		if n := len(p.Gone); n > max(gone, maxGone)+3 || n == 0 {
			t.Fatalf("%d are gone, were %d", n, gone)
		}
	})
}

// FuzzPages gives any bytes for a bbolt file behind its meta pages. Looking at
// it ends, and so does reading what is there.
func FuzzPages(f *testing.F) {
	path := filepath.Join(f.TempDir(), "seed.db")
	db, err := Open(path, Options{})
	if err != nil {
		f.Fatal(err)
	}
	s := claimTest(f, db, Claim{})
	for i := range 20 {
		if err := s.Add(configMap("a", string(rune('a'+i)), i+1, nil)); err != nil {
			f.Fatal(err)
		}
	}
	s.Release()
	if err := db.Close(); err != nil {
		f.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	m, err := newestMeta(bytes.NewReader(b))
	if err != nil {
		f.Fatal(err)
	}
	used := b[2*m.pageSize : uint64(m.pages)*uint64(m.pageSize)]
	f.Add(used, m.root, m.freelist)
	f.Add([]byte{}, uint64(2), ^uint64(0))
	f.Add(nested(40), uint64(2), ^uint64(0))
	f.Fuzz(func(t *testing.T, pages []byte, root, freelist uint64) {
		if len(pages) > 1<<18 {
			return
		}
		all := append(make([]byte, 2*m.pageSize), pages...)
		meta := *m
		meta.root, meta.freelist = root, freelist
		meta.pages = uint64(len(all)) / uint64(meta.pageSize)
		pf := newPageFile(bytes.NewReader(all), &meta, int64(len(all)))
		_ = pf.scan() // that it returns is the test
		_ = pf.each(pf.top(), func(k, v []byte, sub *bucketRef) {
			if sub != nil {
				_ = pf.each(*sub, func([]byte, []byte, *bucketRef) {})
			}
		})
	})
}

// nested is a leaf page whose two elements are the same inline bucket, in which
// there is the same again: 2^depth buckets.
func nested(depth int) []byte {
	o := binary.NativeEndian
	var inner []byte
	for range depth {
		b := make([]byte, pageHead+2*16+16)
		o.PutUint16(b[8:], pageLeaf)
		o.PutUint16(b[10:], 2)
		for i := range 2 {
			e := b[pageHead+16*i:]
			o.PutUint32(e, leafBucket)
			o.PutUint32(e[4:], uint32(2*16-16*i))
			o.PutUint32(e[12:], uint32(16+len(inner)))
		}
		if inner == nil {
			o.PutUint16(b[10:], 0)
		}
		inner = append(b, inner...)
	}
	page := append(inner, make([]byte, 4096-len(inner)%4096)...)
	o.PutUint64(page, 2)
	return page
}

func FuzzBlock(f *testing.F) {
	seed := packBlock(7, []draft{{typ: cache.Added, time: 1, key: "a/b", next: []byte("next")}, {typ: cache.Deleted, key: "", prev: diffOf(nil, []byte("prev"))}})
	f.Add(uint64(7), seed)
	f.Fuzz(func(t *testing.T, seq uint64, b []byte) {
		if len(b) > 5 {
			b = bytes.Clone(b)
			binary.LittleEndian.PutUint32(b[1:], blockSum(seq, b))
		}
		drafts, err := unpackBlock(seq, b)
		if err != nil {
			return
		}
		again, err := unpackBlock(seq, packBlock(seq, drafts))
		if err != nil || len(again) != len(drafts) || len(drafts) > 0 && !reflect.DeepEqual(again, drafts) {
			t.Fatalf("%v: %d entries became %d", err, len(drafts), len(again))
		}
	})
}
