package boltstore

import (
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
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
	m := (&sourceMeta{Source: podSource, ResourceVersion: "77", Seq: 5, Told: 3, Generation: 2}).clone()
	m.Indices["node"] = indexMeta{Version: "1", Complete: true, Digest: digest{3, 4}}
	m.useDict(2, 7)
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

func FuzzPosition(f *testing.F) {
	st := handlerState{Epoch: 1, Cursor: 9, Pending: map[string]uint64{"a/b": 7}, Replaying: true, Next: []byte("12345678place"), Shown: []string{"a/c"}}
	f.Add(append(layout.U64(6), fuzzSeed(f, &st)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		st, err := parseHandlerState(format.WithSum(b))
		if err != nil {
			return
		}
		if p := st.position(nil); p.low() > p.Cursor {
			t.Fatalf("%d is above the cursor %d", p.low(), p.Cursor)
		}
		again(t, st, parseHandlerState, layout.U64(st.mark))
	})
}

func FuzzParked(f *testing.F) {
	p := &parked{Key: "a/b"}
	p.fold(1, format.Draft{Type: cache.Updated, Time: 5, Prev: format.DiffOf([]byte("next"), []byte("prev")), Next: []byte("next")}, 0)
	f.Add(fuzzSeed(f, p))
	p.fold(2, format.Draft{Type: cache.Deleted, Time: 6, Prev: format.DiffOf(nil, []byte("next"))}, 0)
	f.Add(fuzzSeed(f, p))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := parseParked(format.WithSum(b))
		if err != nil {
			return
		}
		again(t, p, parseParked, nil)
		gone := len(p.Gone)
		p.drafts(0)
		for seq, end := p.Last+1, p.Last+4; seq != end; seq++ {
			p.fold(seq, format.Draft{Type: cache.Deleted, Prev: format.DiffOf(nil, []byte("x"))}, 0)
		}
		if n := len(p.Gone); n > max(gone, maxGone)+3 || n == 0 {
			t.Fatalf("%d are gone, were %d", n, gone)
		}
	})
}
