package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// leavesOf returns the ids of a bucket's leaf pages, in order, if its root is above them.
func leavesOf(t *testing.T, f *pages.File, b pages.Bucket) (ids []uint64) {
	t.Helper()
	p, err := f.Head(b.Root)
	if err != nil {
		t.Fatal(err)
	}
	c, err := f.Content(p)
	if err != nil || p.Flags != pages.Branch {
		t.Fatal(err, p)
	}
	for i := range p.Count {
		ids = append(ids, binary.NativeEndian.Uint64(c[pages.HeadSize+16*i+8:]))
	}
	return ids
}

// lateFile is a file of 600 objects in which two leaf pages of a bucket of the source's
// generation are swapped, but for their ids.
func lateFile(t *testing.T, bucket ...[]byte) (path string, srv server) {
	t.Helper()
	path = testPath(t)
	db := openTest(t, path, Options{decrypt: true}) // the place depends on the names
	srv = server{}
	for i := range 600 {
		words := fmt.Sprintf("word%03d", i)
		srv.set(configMap("ns", fmt.Sprintf("cm%04d", i), i+1,
			map[string]string{"words": words, "k": strings.Repeat("v", 100)}))
	}
	relist(t, claimTest(t, db, Claim{Indexers: indexers}), "601", RelistOptions{}, srv.list(), 100)
	closeTest(t, db)
	f, done, err := pages.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	b := bucketAt(t, f, append([][]byte{layout.BucketSources, []byte(configMaps.ID())}, bucket...)...)
	ids := leavesOf(t, f, b)
	one, other := ids[len(ids)/3], ids[2*len(ids)/3]
	var was []byte
	rewritePage(t, path, f, one, func(_ pages.Page, b []byte) { was = slices.Clone(b) })
	rewritePage(t, path, f, other, func(_ pages.Page, b []byte) { swapTail(was, b) })
	rewritePage(t, path, f, one, func(_ pages.Page, b []byte) { swapTail(was, b) })
	return path, srv
}

// swapTail swaps two pages behind their ids.
func swapTail(a, b []byte) {
	for i := 8; i < min(len(a), len(b)); i++ {
		a[i], b[i] = b[i], a[i]
	}
}

// TestReaderOfDamagedItems: a reader opens a file in which two pages of objects are
// swapped. It reads the objects of other pages by key. All other reads are errors that name
// the file and say what to do: none lacks an object, and none says that there is none.
func TestReaderOfDamagedItems(t *testing.T) {
	path, srv := lateFile(t, layout.BucketItems)
	for _, giveWay := range []bool{true, false} {
		r, err := Open(path, Options{ReadOnly: true, GiveWay: giveWay})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		s, err := r.View(configMaps)
		if err != nil {
			t.Fatal(err)
		}
		found, damaged := 0, 0
		for key := range srv {
			switch o, ok, err := s.GetByKey(key); {
			case errors.Is(err, ErrDamaged):
				damaged++
			case err != nil || !ok || keyAndContent(o) != keyAndContent(srv[key]):
				t.Errorf("%s: %v %v", key, ok, err)
			default:
				found++
			}
		}
		if found < 300 || damaged < 4 {
			t.Errorf("%d found, %d damaged", found, damaged)
		}
		for what, read := range map[string]func() error{
			"list": func() error { _, err := s.ListErr(); return err },
			"keys": func() error { _, err := s.ListKeysErr(); return err },
			"page": func() error { _, err := s.Page(nil, 1); return err },
			"index": func() error {
				for _, v := range s.ListIndexFuncValues("words") {
					if _, err := s.ByIndex("words", v); err != nil {
						return err
					}
				}
				return nil
			},
			"snapshot": func() error {
				snap, err := r.Snapshot()
				if err == nil {
					_, err = io.Copy(io.Discard, snap)
				}
				return err
			},
		} {
			if err := read(); !errors.Is(err, ErrDamaged) ||
				!strings.Contains(err.Error(), "open "+path+" with the program that uses it") {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// TestReaderOfDamagedIndex: a reader opens a file in which two pages of an index are
// swapped. It reads objects, and no values of the index.
func TestReaderOfDamagedIndex(t *testing.T) {
	path, srv := lateFile(t, layout.BucketIndex, layout.IndexBucket("words"))
	r, err := Open(path, Options{ReadOnly: true, GiveWay: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := r.View(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	list, err := s.ListErr()
	if err != nil {
		t.Error(err)
	}
	sameObjects(t, "a damaged index", srv.anys(), list)
	for _, o := range list {
		values, _ := indexers["words"](o)
		for _, v := range values {
			if _, err := s.ByIndex("words", v); !errors.Is(err, ErrDamaged) {
				t.Fatalf("%q: %v", v, err)
			}
		}
	}
	if v := s.ListIndexFuncValues("words"); len(v) > 0 {
		t.Errorf("%d values", len(v))
	}
}

// TestReaderOfDamagedFirstPage: a reader opens a file in which the first page of a source's
// objects is another one. The states of all sources are told, and say what is damaged.
func TestReaderOfDamagedFirstPage(t *testing.T) {
	path, _ := lateFile(t, layout.BucketIndex, layout.IndexBucket("words"))
	f, done, err := pages.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	ids := leavesOf(t, f, bucketAt(t, f, layout.BucketSources, []byte(configMaps.ID()), layout.BucketItems))
	var other []byte
	rewritePage(t, path, f, ids[4], func(_ pages.Page, b []byte) { other = slices.Clone(b) })
	rewritePage(t, path, f, ids[0], func(_ pages.Page, b []byte) { copy(b, other) })
	r, err := Open(path, Options{ReadOnly: true, GiveWay: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for what, read := range map[string]func() ([]State, error){"States": r.States, "Sources": r.Sources} {
		states, err := read()
		if err != nil || len(states) != 1 || states[0].Source != configMaps ||
			!strings.Contains(states[0].Degraded, "page") {
			t.Errorf("%s: %v %+v", what, err, states)
		}
	}
	s, err := r.View(configMaps)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.GetByKey("ns/cm0599"); !ok || err != nil {
		t.Error("an object of a sound page: ", ok, err)
	}
}
