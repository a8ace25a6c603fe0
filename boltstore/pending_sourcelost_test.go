package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestHandlersOfALostSource: a durable handler whose source was lost with a damaged file is
// told a Reset. The plain handlers of that source count as awaited: there may have been
// deletes, now unknown, that they should be told.
func TestHandlersOfALostSource(t *testing.T) {
	ks := sealtest.Keyset()
	overwrite := func(t *testing.T, path string, at int64, with []byte) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt(with, at)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	size := int64(os.Getpagesize())
	type made struct {
		b    []byte
		page map[string]int
	}
	files := map[bool]made{}
	withHandlers := func(t *testing.T, o Options) ([]byte, map[string]int) {
		encrypted := o.Keyset != nil
		if files[encrypted].b == nil {
			b, page := manyHandlers(t, o)
			files[encrypted] = made{b, page}
		}
		return files[encrypted].b, files[encrypted].page
	}
	for name, tc := range map[string]struct {
		opts   Options
		damage func(t *testing.T, path string, page map[string]int)
		known  bool
	}{
		"nothing": {Options{}, func(*testing.T, string, map[string]int) {}, false},
		"removed by hand": {Options{}, func(t *testing.T, path string, _ map[string]int) {
			must(t, os.Remove(path))
		}, false},
		"the source": {Options{}, func(t *testing.T, path string, page map[string]int) {
			ruin(t, path, page["source"])
		}, true},
		"all sources": {Options{}, func(t *testing.T, path string, page map[string]int) {
			ruin(t, path, page["sources"])
		}, true},
		"the source, encrypted": {Options{Keyset: ks}, func(t *testing.T, path string, page map[string]int) {
			ruin(t, path, page["source"])
		}, true},
		"the beginning": {Options{}, func(t *testing.T, path string, _ map[string]int) {
			overwrite(t, path, 0, make([]byte, 4*size))
		}, true},
		"both meta pages": {Options{}, func(t *testing.T, path string, _ map[string]int) {
			overwrite(t, path, 0, bytes.Repeat([]byte{1}, int(2*size)))
		}, true},
		"all bytes": {Options{ReplaceForeign: true}, func(t *testing.T, path string, _ map[string]int) {
			must(t, os.WriteFile(path, []byte("rubbish"), 0o600))
		}, true},
		"cut to nothing": {Options{}, func(t *testing.T, path string, _ map[string]int) {
			must(t, os.Truncate(path, 0))
		}, true},
		"newer format": {Options{}, func(t *testing.T, path string, _ map[string]int) {
			changeHeader(t, path, func(h *header) { h.Format = formatVersion + 1 })
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			path := testPath(t)
			b, page := withHandlers(t, tc.opts)
			must(t, os.WriteFile(path, b, 0o600))
			tc.damage(t, path, page)

			check := func(what string, o Options, i int) {
				t.Helper()
				db := openTest(t, path, o)
				defer closeTest(t, db)
				src := configMaps
				if i > 0 {
					src.Namespace = fmt.Sprint("later", i)
				}
				s := claimTest(t, db, Claim{Source: src})
				if h, _ := claimHandler(t, s, "one"); !resetOwed(h) || s.Delivery.AwaitsPlain() != tc.known {
					t.Errorf("%s: a Reset is owed: %t, a plain handler is awaited: %t", what, resetOwed(h),
						s.Delivery.AwaitsPlain())
				}
			}
			check("at once", tc.opts, 0)
			check("in the next life", tc.opts, 1)
			o := tc.opts
			if o.Keyset = ks; tc.opts.Keyset != nil {
				o.decrypt = true
			}
			check("converted", o, 2)
			db := openTest(t, path, o)
			_, err := db.Compact(t.Context(), nil)
			must(t, err)
			closeTest(t, saved(t, db))
			tc.known = true // whatever was saved, a source may be lost
			check("compacted and salvaged", o, 3)
		})
	}
}

// manyHandlers returns a file with many sources and handlers, and its pages that lead to
// all sources and to the one of the handlers.
func manyHandlers(t *testing.T, o Options) (file []byte, page map[string]int) {
	t.Helper()
	path := testPath(t)
	db := openTest(t, path, o)
	s := claimTest(t, db, Claim{})
	var hs []*Handler
	for i := range 80 { // too many to be inlined
		h, _ := claimHandler(t, s, fmt.Sprint("handler-", i))
		hs = append(hs, h)
	}
	for i := range 80 {
		src := configMaps
		src.Namespace = fmt.Sprint("ns", i)
		claimTest(t, db, Claim{Source: src}).Release()
	}
	for _, h := range hs {
		must(t, h.Release())
	}
	page = map[string]int{}
	must(t, db.h.view(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, configMaps.ID())
		page["source"], page["sources"] = int(src.Root.Root()), int(tx.Bucket(layout.BucketSources).Root())
		return nil
	}))
	if page["source"] == 0 || page["sources"] == 0 {
		t.Fatal(page)
	}
	closeTest(t, db)
	file, err := os.ReadFile(path)
	must(t, err)
	return file, page
}
