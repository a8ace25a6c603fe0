package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// TestSourceTwice: an older page of the list of sources has a source that is also on the next page, as
// of another commit. The two are not merged.
func TestSourceTwice(t *testing.T) {
	path := testPath(t)
	o := Options{Window: time.Nanosecond, ObjectMemory: -1}
	db := openTest(t, path, o)
	var sources []Source
	for i := range 300 {
		src := configMaps
		src.LabelSelector = fmt.Sprint("n=", i)
		sources = append(sources, src)
	}
	slices.SortFunc(sources, func(a, b Source) int { return bytes.Compare([]byte(a.ID()), []byte(b.ID())) })
	x := sources[len(sources)-1]
	s := claimTest(t, db, Claim{Source: x})
	srv := server{}
	for i := range 299 {
		srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1, map[string]string{"words": "w"}))
	}
	relist(t, s, "500", RelistOptions{}, srv.list(), 50)
	p := &testProducer{}
	s.Feed.Attach(p)
	size := os.Getpagesize()
	list := func() (p pages.Page, root uint64, f *pages.File) { // the list of the sources
		b, f, err := db.h.sourcesOnDisk()
		must(t, err)
		p, err = f.Head(b.Root)
		must(t, err)
		return p, b.Root, f
	}
	var readers []*bolt.Tx // of long snapshots: they keep pages from being used again
	var older []byte
	for i := 0; ; i++ {
		tx, err := db.h.now.Load().Begin(false)
		must(t, err)
		readers = append(readers, tx)
		head, root, _ := list()
		file, err := os.ReadFile(path)
		must(t, err)
		if head.Flags == pages.Branch {
			break
		}
		older = bytes.Clone(file[int(root)*size:][:size])
		gone := configMap("ns", fmt.Sprintf("cm%03d", i), 501+i, nil)
		delete(srv, fmt.Sprintf("ns/cm%03d", i))
		event(t, s, p, cache.Deleted, gone, nil)
		claimTest(t, db, Claim{Source: sources[i]})
	}
	_, root, f := list()
	head, err := f.Head(root)
	must(t, err)
	b, err := f.Content(head)
	must(t, err)
	// the first child's number
	first := int(b[pages.HeadSize+8]) | int(b[pages.HeadSize+9])<<8 | int(b[pages.HeadSize+10])<<16
	for _, tx := range readers {
		must(t, tx.Rollback())
	}
	killed(t, db)
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = w.WriteAt(older[8:], int64(first*size)+8) // but for its number
	must(t, err)
	must(t, w.Close())

	db = opened(t, path, o)
	if len(db.AsidePaths()) != 1 {
		t.Fatal("the damage was not noticed")
	}
	s = claimTest(t, db, Claim{Source: x})
	is, st := s.ListKeys(), s.State()
	rv, err := strconv.Atoi(st.ResourceVersion)
	must(t, err)
	if want := 299 - (rv - 500); len(is) != want && s.Err() == nil {
		t.Errorf("as of %d it has %d objects and serves %d; degraded %q", rv, want, len(is), st.Degraded)
	}
}

// TestKeysTwice: an older page has keys that are also on the next one. Each is saved once, with the
// index values of what is saved.
func TestKeysTwice(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{Window: time.Nanosecond, ObjectMemory: -1})
	s, srv := listed400(t, db)
	p := &testProducer{}
	s.Feed.Attach(p)
	leaves := itemPages(t, db)
	leaf := leaves[3]
	page := func(id int) []byte {
		file, err := os.ReadFile(path)
		must(t, err)
		return bytes.Clone(file[id*os.Getpagesize():][:os.Getpagesize()])
	}
	firstKey := func(page []byte) string {
		o := binary.NativeEndian
		pos, size := int(o.Uint32(page[16+4:])), int(o.Uint32(page[16+8:]))
		return string(page[16+pos:][:size])
	}
	old := page(leaf)
	first := firstKey(old)
	var keys []string
	all := s.ListKeys()
	slices.Sort(all)
	for i, k := range all {
		if strings.Contains(first, strings.TrimPrefix(k, "ns/")) {
			keys = all[i : i+20]
		}
	}
	if keys == nil {
		t.Fatalf("%q", first)
	}
	for i, k := range keys { // they grow, and move to another index value
		o := configMap("ns", strings.TrimPrefix(k, "ns/"), 501+i,
			map[string]string{"words": "new", "x": strings.Repeat("x", 200)})
		p.add(t, s, o)
		p.wait(t)
		srv.set(o)
	}
	now := -1
	for _, l := range itemPages(t, db) {
		if firstKey(page(l)) == first {
			now = l
		}
	}
	killed(t, db)
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	must(t, err)
	_, err = f.WriteAt(old[8:], int64(now)*int64(len(old))+8) // but for its number
	must(t, err)
	must(t, f.Close())
	db = openTest(t, path, Options{Window: time.Nanosecond, ObjectMemory: -1, boot: "another"})
	s = claimTest(t, db, Claim{Indexers: indexers})
	if n := len(s.ListKeys()); uint64(n) != s.State().Objects {
		t.Errorf("%d keys, state %d objects", n, s.State().Objects)
	}
	for _, v := range []string{"0", "1", "2", "new"} {
		objs, err := s.ByIndex("words", v)
		if err != nil {
			t.Errorf("index %s: %d objects, %v", v, len(objs), err)
		}
	}
	if st, err := db.Check(); err != nil || len(st.Sources[0].Problems) > 1 {
		t.Error(st.Sources[0].Problems, err)
	}
}

// TestLostNotes: the notes of unstored objects are lost. A list reads these objects.
func TestLostNotes(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{Window: time.Nanosecond})
	s, _ := listed400(t, db)
	p := &testProducer{}
	s.Feed.Attach(p)
	obj := configMap("ns", "cm000", 501, nil)
	event(t, s, p, "Updated", obj, errors.New("refused"))
	if s.Feed.UnstoredObjects() != 1 {
		t.Fatal(s.State())
	}
	killed(t, db)
	b, err := bolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, b.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(layout.BucketSources).Bucket([]byte(configMaps.ID())).DeleteBucket(layout.BucketNotes)
	}))
	must(t, b.Close())
	db = openTest(t, path, Options{boot: "another"}) // verifies, and salvages
	if len(db.AsidePaths()) != 1 {
		t.Fatal("not salvaged")
	}
	s = claimTest(t, db, Claim{Indexers: indexers})
	if st := s.State(); s.Feed.UnstoredObjects() == 0 && st.Degraded == "" {
		t.Errorf("nothing says that cm000 must be read again: %+v", st)
	}
}

// TestStraySet: a set of pending keys is under a name that meta does not know, as after a flipped bit.
// It is dropped once, and does not lead to a salvage at each unclean boot.
func TestStraySet(t *testing.T) {
	path := testPath(t)
	o := Options{Window: time.Nanosecond}
	db := openTest(t, path, o)
	s, srv := listed400(t, db)
	h, _ := claimHandler(t, s, "test")
	tookReset(t, h) // all keys are pending
	must(t, h.Release())
	closeTest(t, db)
	b, err := bolt.Open(path, 0o600, nil)
	must(t, err)
	must(t, b.Update(func(tx *bolt.Tx) error { // a bit of the name flips
		sets := tx.Bucket(layout.BucketSources).Bucket([]byte(configMaps.ID())).Bucket(layout.BucketPending)
		to, err := sets.CreateBucket([]byte("tesu"))
		if err == nil {
			err = sets.Bucket([]byte("test")).ForEach(func(k, v []byte) error { return to.Put(k, v) })
		}
		return errors.Join(err, sets.DeleteBucket([]byte("test")))
	}))
	must(t, b.Close())
	for boot := range 3 {
		o.boot = fmt.Sprint("boot", boot)
		db = openTest(t, path, o)
		if boot > 1 && len(db.AsidePaths()) > 0 {
			t.Errorf("boot %d: set aside again: %q", boot, db.AsidePaths())
		}
		s := claimTest(t, db, Claim{Indexers: indexers})
		p := &testProducer{}
		s.Feed.Attach(p)
		p.add(t, s, configMap("ns", "x", 600+10*boot, nil))
		p.wait(t)
		srv.set(configMap("ns", "x", 600+10*boot, nil))
		relist(t, s, fmt.Sprint(605+10*boot), RelistOptions{}, srv.list(), 50) // it heals
		if r, err := db.Check(); boot > 0 && (err != nil || !r.Sound()) {
			t.Errorf("boot %d, after a list: %v %+v", boot, err, r.Sources)
		}
		killed(t, db)
	}
}
