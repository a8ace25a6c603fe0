package boltstore

import (
	"bytes"
	"errors"
	"testing"

	"github.com/kubewake/kubewake/index"
)

// filledByProgram makes a source without a server, in which an index function has failed
// on one of three objects.
func filledByProgram(t *testing.T, path string) (*DB, *Claimed) {
	t.Helper()
	db := openTest(t, path, Options{ObjectMemory: -1})
	s := claimTest(t, db, failing(&[]string{"b"}))
	for i, name := range []string{"a", "b", "c"} {
		must(t, s.Add(configMap("ns", name, i+1, nil)))
	}
	expectNoted(t, "the function fails", s, "ns/b odd")
	return db, s
}

// TestMendKeepsNotes: an index function that failed on an object is called again, even
// after the source was mended.
func TestMendKeepsNotes(t *testing.T) {
	path := testPath(t)
	db, s := filledByProgram(t, path)
	must(t, s.updateMeta(func(src sourceTx, m *sourceMeta) error {
		items, k := src.contents().Items, index.AppendKey(nil, "ns/a")
		raw := bytes.Clone(items.Get(k))
		raw[len(raw)-1] ^= 1
		return items.Put(k, raw)
	}))
	if _, _, err := s.GetByKey("ns/a"); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	must(t, s.Filled.Mend())
	if s.Err() != nil {
		t.Error(s.Err())
	}
	expectNoted(t, "mended", s, "ns/b odd")
	closeTest(t, db)
	s = claimTest(t, openTest(t, path, Options{}), failing(&[]string{}))
	expectNoted(t, "the function succeeds", s)
	wantOne(t, "the function succeeds", s, "odd", "v2")
	wantOne(t, "the function succeeds", s, "odd", "v3")
}
