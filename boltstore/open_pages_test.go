package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestDamageIsToldBriefly: damage is reported in a few lines and a count of the rest,
// however much there is.
func TestDamageIsToldBriefly(t *testing.T) {
	path := testPath(t)
	stored(t, path, 3000, 1, Options{})
	db := openTest(t, path, Options{})
	leaves := itemPages(t, db)
	closeTest(t, db)
	if len(leaves) < 100 {
		t.Fatalf("%d pages", len(leaves))
	}
	for _, id := range leaves {
		ruin(t, path, id)
	}
	if _, err := precheck(path); !errors.Is(err, ErrDamaged) || len(err.Error()) > 4<<10 ||
		!strings.Contains(err.Error(), " more") {
		t.Errorf("%d bytes: %.200v", len(fmt.Sprint(err)), err)
	}
	longest := 0
	log := funcr.New(func(_, args string) { longest = max(longest, len(args)) }, funcr.Options{})
	db = openTest(t, path, Options{Logger: &log})
	if len(db.AsidePaths()) != 1 || longest == 0 || longest > 12<<10 {
		t.Errorf("set aside %q, %d bytes were logged at once", db.AsidePaths(), longest)
	}
}

// TestCheckIsBrief: the same for problems of a file's list of free pages.
func TestCheckIsBrief(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	fill(t, claimTest(t, db, Claim{}), 600, 50)
	closeTest(t, db)
	f, done, err := pages.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	rewritePage(t, path, f, f.Freelist(), func(p pages.Page, b []byte) {
		if p.Count < 2*faults.Most {
			t.Fatalf("%d free pages", p.Count)
		}
		clear(b[10:12]) // their number
	})
	db, err = Open(path, Options{ReadOnly: true, Keyset: sealtest.Default()})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if r, err := db.Check(); err != nil || len(r.Problems) != faults.Most {
		t.Errorf("%d problems, %v", len(r.Problems), err)
	}
}

// misplaced gives the bucket of the source's items another root page in the open file, until
// the function that it returns is called.
func misplaced(t *testing.T, db *DB, root func(top uint64) uint64) (repair func()) {
	t.Helper()
	var items, top uint64
	if err := db.h.view(func(tx *bolt.Tx) error {
		sources := tx.Bucket(layout.BucketSources)
		top = uint64(sources.RootPage())
		items = uint64(sources.Bucket([]byte(configMaps.ID())).Bucket(layout.BucketItems).RootPage())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	head := func(root uint64) []byte {
		return binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, root), layout.Signature)
	}
	b, err := os.ReadFile(db.path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(b []byte) {
		f, err := os.OpenFile(db.path, os.O_WRONLY, 0) // without a moment in which it is empty
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(b, 0); errors.Join(err, f.Close()) != nil {
			t.Fatal(err)
		}
	}
	write(bytes.ReplaceAll(b, head(items), head(root(top))))
	return func() { write(b) }
}

// TestCheckOfLostPages: Check reports a bucket whose root is not a page of the file, or
// is a page above it, in an open file. It reads no such page, and ends.
func TestCheckOfLostPages(t *testing.T) {
	for name, root := range map[string]func(top uint64) uint64{
		"beyond the file": func(uint64) uint64 { return 1 << 20 },
		"far beyond it":   func(uint64) uint64 { return 1 << 60 },
		"in a circle":     func(top uint64) uint64 { return top },
		"of another kind": func(uint64) uint64 { return 1 },
	} {
		t.Run(name, func(t *testing.T) {
			db := openTest(t, testPath(t), Options{})
			fill(t, claimTest(t, db, Claim{}), 600, 50)
			defer misplaced(t, db, root)()
			if r, err := db.Check(); err != nil || len(r.Problems) == 0 {
				t.Errorf("%+v, %v", r, err)
			}
		})
	}
}

// TestCompactInACircle: a compaction of an open file in which buckets have come to be in
// themselves ends.
func TestCompactInACircle(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	fill(t, s, 600, 50)
	misplaced(t, db, func(top uint64) uint64 { return top })
	if _, err := db.Compact(t.Context(), nil); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	nothingIsWritten(t, db, s)
	killed(t, db)
}

// TestRelistInACircle: a list that replaces contents of an open file, in which a bucket
// has come to be in itself, ends. In the next life the file has the list's objects.
func TestRelistInACircle(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	srv := server{}
	for i := range 600 {
		srv.set(configMap("ns", fmt.Sprint("x", i), i+1, nil))
	}
	relist(t, s, "700", RelistOptions{}, srv.list(), 50)
	misplaced(t, db, func(top uint64) uint64 { return top })
	relistFails(t, s, srv.list())
	relistFails(t, s, srv.list()) // it verifies the pages first
	nothingIsWritten(t, db, s)
	killed(t, db)
	db = openTest(t, db.path, db.opts)
	s = claimTest(t, db, Claim{})
	relist(t, s, "701", RelistOptions{}, srv.list(), 50)
	sameObjects(t, "after", srv.anys(), s.List())
	if r, err := db.Check(); err != nil || !r.Sound() || s.Err() != nil {
		t.Errorf("%+v %v %v", r, err, s.Err())
	}
}

// TestCompactDataWithBuckets: a page of records of the open file has come to hold buckets that
// lead to the page itself, as an older page can. A compaction ends.
func TestCompactDataWithBuckets(t *testing.T) {
	db := openTest(t, testPath(t), Options{Compression: CompressionNone})
	s := claimTest(t, db, Claim{})
	srv := server{}
	for i := range 8 { // a page, and too much to be kept inline
		srv.set(configMap("ns", fmt.Sprint("x", i), i+1, map[string]string{"k": strings.Repeat("v", 200)}))
	}
	relist(t, s, "500", RelistOptions{}, srv.list(), 50)
	var items, top int
	must(t, db.h.view(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, s.id)
		items, top = int(src.contents().Items.Bucket.RootPage()), int(tx.Cursor().Bucket().RootPage())
		return nil
	}))
	f, err := os.OpenFile(db.path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	page, size := make([]byte, os.Getpagesize()), int64(os.Getpagesize())
	_, err = f.ReadAt(page, int64(top)*size)
	must(t, err)
	binary.NativeEndian.PutUint64(page, uint64(items))
	if items == 0 {
		t.Fatal("the records have no page of their own")
	}
	_, err = f.WriteAt(page, int64(items)*size)
	must(t, err)
	if _, err := db.Compact(t.Context(), nil); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	nothingIsWritten(t, db, s)
	killed(t, db)
}

// TestCircleIsDamage: a write that meets a bucket within itself is the last.
func TestCircleIsDamage(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	if err := db.h.update(func(*bolt.Tx) error { return layout.ErrCircle }, nil); !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	nothingIsWritten(t, db, s)
	killed(t, db)
}
