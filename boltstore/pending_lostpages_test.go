package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"github.com/go-logr/logr"
	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// TestHandlerOfAnOlderCopy: an older copy is written over the open file, and the claimed
// sources have not changed since. A handler that has come since then is told a Reset.
func TestHandlerOfAnOlderCopy(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	claimed := claimTest(t, db, Claim{})
	relist(t, claimed, "10", RelistOptions{}, nil, 10)
	other := configMaps
	other.Namespace = "other"
	s := claimTest(t, db, Claim{Source: other})
	relist(t, s, "10", RelistOptions{}, nil, 10)
	s.Release()
	older, err := os.ReadFile(path)
	must(t, err)
	s = claimTest(t, db, Claim{Source: other})
	h, _ := claimHandler(t, s, "d")
	must(t, h.Release())
	s.Release()

	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	must(t, err)
	_, err = f.Write(older)
	must(t, errors.Join(err, f.Close()))
	_ = db.h.view(func(*bolt.Tx) error { return nil })
	killed(t, db)
	db = openTest(t, path, Options{})
	if h, _ = claimHandler(t, claimTest(t, db, Claim{Source: other}), "d"); !resetOwed(h) {
		t.Error("the handler goes on without a Reset")
	}
}

// TestLostPageOnAFullDisk: a file with a page that is neither in use nor free can be
// opened and read on a disk that takes no writes. The first write that succeeds notes the
// loss.
func TestLostPageOnAFullDisk(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	fill(t, claimTest(t, db, Claim{}), 100, 1)
	closeTest(t, db)
	losePage(t, path)
	before, err := os.ReadFile(path)
	must(t, err)

	db = opened(t, path, Options{})
	after, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(before, after) {
		t.Error("Open has written")
	}
	full := errors.New("the disk is full")
	db.h.hook = func(*bolt.Tx) error { return full }
	s := claimTest(t, db, Claim{})
	if n := len(s.List()); n != 100 {
		t.Errorf("%d objects", n)
	}
	if _, err := s.Delivery.Claim("a", func(HandlerChange) {}); !errors.Is(err, full) {
		t.Error(err)
	}
	db.h.hook = nil
	claimHandler(t, s, "a")
	s.Release()
	must(t, db.Close())
	_, err = Compact(t.Context(), path, db.opts, nil) // nothing else shows the loss any more
	must(t, err)
	db = openTest(t, path, Options{})
	if s := claimTest(t, db, Claim{Source: inNamespace("other")}); !s.Delivery.AwaitsPlain() {
		t.Error("a source that may have been lost counts as new")
	}
}

// losePage takes a page off the list of free pages.
func losePage(t *testing.T, path string) {
	t.Helper()
	f, done, err := pages.Open(path)
	must(t, err)
	defer done()
	rewritePage(t, path, f, f.Freelist(), func(_ pages.Page, b []byte) {
		n := binary.NativeEndian.Uint16(b[10:])
		if n == 0 {
			t.Fatal("no page is free")
		}
		binary.NativeEndian.PutUint16(b[10:], n-1)
	})
	if lost, err := precheck(path); !lost || err != nil {
		t.Fatal(lost, err)
	}
}

// TestPlainHandlerBesideAnUnreadSource: the description of one source cannot be read, or its
// objects are missing. Another source that is missing may be lost, too: its plain handlers
// count as awaited, whichever of the two is claimed first, also after a compaction.
func TestPlainHandlerBesideAnUnreadSource(t *testing.T) {
	awaited := func(db *DB, src Source) bool {
		s := claimTest(t, db, Claim{Source: src})
		defer s.Release()
		return s.Delivery.AwaitsPlain()
	}
	for name, before := range map[string]func(db *DB){
		"missing one first": func(*DB) {},
		"unread one first":  func(db *DB) { claimTest(t, db, Claim{}).Release() },
		"compacted":         func(db *DB) { _, err := db.Compact(t.Context(), nil); must(t, err) },
	} {
		for damage, do := range map[string]func(*testing.T, *DB){"description": damageMeta, "objects": dropObjects} {
			t.Run(damage+", "+name, func(t *testing.T) {
				path := testPath(t)
				db := opened(t, path, Options{})
				must(t, claimTest(t, db, Claim{}).Add(configMap("a", "b", 1, nil)))
				do(t, db)
				must(t, db.Close())
				db = opened(t, path, Options{Logger: new(logr.Discard())})
				before(db)
				if !awaited(db, inNamespace("missing")) {
					t.Error("a plain handler of a missing source is not awaited")
				}
				must(t, db.Close())
				db = opened(t, path, Options{Logger: new(logr.Discard())})
				if !awaited(db, inNamespace("another")) {
					t.Error("in the next life it is not awaited")
				}
				must(t, db.Close())
			})
		}
	}
}

// dropObjects removes the generations of a source.
func dropObjects(t *testing.T, db *DB) {
	t.Helper()
	must(t, db.h.update(func(tx *bolt.Tx) error {
		src, ok := db.h.source(tx, configMaps.ID())
		if !ok {
			return ErrNoSource
		}
		return layout.Drop(src.Root, layout.BucketItems)
	}, nil))
}
