package boltstore

import (
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// Fuzz targets of the file's forms. Their inputs have valid checksums, unlike damage,
// but reading must be safe without checksums. Interesting inputs are below
// testdata/fuzz.

func fuzzSeed(f *testing.F, v any) []byte {
	f.Helper()
	b, err := msgpack.Marshal(v)
	if err != nil {
		f.Fatal(err)
	}
	return b
}

// again encodes v and parses the result, which must equal v.
func again[T any](t *testing.T, v *T, parse func([]byte) (*T, error), prefix []byte) {
	t.Helper()
	b, err := msgpack.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse(format.WithSum(append(prefix, b...)))
	if err != nil {
		t.Fatal(err)
	}
	if b2, err := msgpack.Marshal(got); err != nil || len(b) != len(b2) { // maps have no order
		t.Fatalf("%v: %+v became %+v", err, v, got)
	}
}

func FuzzMeta(f *testing.F) {
	m := (&sourceMeta{Source: podSource, ResourceVersion: "77", Seq: 5, Told: 3, Contents: contentsWhole}).clone()
	m.Indices["node"] = indexMeta{Version: "1", Complete: true, Digest: digest{3, 4}}
	f.Add(fuzzSeed(f, m))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := parseMeta(format.WithSum(b))
		if err != nil {
			return
		}
		m.state(newDevice(Options{}.withDefaults()))
		again(t, m, parseMeta, nil)
	})
}

func FuzzPending(f *testing.F) {
	p := &pendingKey{Initial: true}
	p.change(1, format.Draft{Type: cache.Updated, Key: "a/b", Time: 5,
		Prev: format.DiffOf([]byte("next"), []byte("prev")), Next: []byte("next")})
	f.Add(fuzzSeed(f, p))
	p.change(2, format.Draft{Type: cache.Deleted, Key: "a/b", Time: 6, Prev: format.DiffOf(nil, []byte("next"))})
	f.Add(fuzzSeed(f, p))
	f.Fuzz(func(t *testing.T, b []byte) {
		parse := func(b []byte) (*pendingKey, error) { return parsePending("", b) }
		p, err := parse(format.WithSum(b))
		if err != nil {
			return
		}
		again(t, p, parse, nil)
		before := len(p.Deleted)
		for seq, end := p.Seq+1, p.Seq+10; seq != end && seq != 0; seq++ {
			p.change(seq, format.Draft{Type: cache.Deleted, Prev: format.DiffOf(nil, []byte("x"))})
			if n := len(p.Deleted); n > max(before, mostDeleted) || n == 0 || p.Deleted[n-1].Seq != seq {
				t.Fatalf("%d deletes, were %d", n, before)
			}
		}
		if !p.acknowledge(p.Seq, 1) {
			t.Fatal("it stays pending")
		}
	})
}
