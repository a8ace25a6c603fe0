package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// few says whether a test that tries many files tries only a part of them. The race
// detector, which looks at what goroutines share, takes five times as long for each. make
// test tries all of them without it.
func few() bool { return testing.Short() || underRace }

// used is a file's content without the room at its end that bbolt has never used.
func used(file []byte) []byte {
	size, end := os.Getpagesize(), uint64(0)
	for _, meta := range [][]byte{file[:size], file[size : 2*size]} {
		end = max(end, binary.NativeEndian.Uint64(meta[56:])) // the number of the first unused page
	}
	return file[:min(int(end)*size, len(file))]
}

// rewritePage changes a page of a file.
func rewritePage(t *testing.T, path string, f *pages.File, id uint64, change func(p pages.Page, b []byte)) {
	t.Helper()
	p, err := f.Head(id)
	if err != nil {
		t.Fatal(err)
	}
	b, err := f.Content(p)
	if err != nil {
		t.Fatal(err)
	}
	change(p, b)
	w, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.WriteAt(b, int64(id)*int64(f.PageSize())); err != nil {
		t.Fatal(err)
	}
}

func noLeftovers(t testing.TB, path string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	if err != nil || len(left) > 0 {
		t.Fatalf("left behind: %v %v", left, err)
	}
}

// changeHeader changes the header of a closed file.
func changeHeader(t *testing.T, path string, change func(h *header)) {
	t.Helper()
	b, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = b.Update(func(tx *bolt.Tx) error { return updateHeader(tx, change) })
	if err := errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
}

// copied returns a copy of the folder as a crash leaves it.
func copied(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	copyDir(t, from, to)
	return to
}

// keysDue is a header of a file that is to have a new data key.
func keysDue(h *header) { h.Rotate = true }

// rotated closes db and opens the file again, with a new data key.
func rotated(t *testing.T, db *DB) *DB {
	t.Helper()
	before := sealedBy(t, db.h.seal)
	closeTest(t, db)
	changeHeader(t, db.path, keysDue)
	db = openTest(t, db.path, db.opts)
	if db.KeysDue() || opens(db.h.seal, before) {
		t.Fatal("not rotated")
	}
	return db
}

// sealedBy seals a value. Only the same data key opens it.
func sealedBy(t *testing.T, s *seal.Sealer) []byte {
	t.Helper()
	b, err := s.Value([]byte("a value"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func opens(s *seal.Sealer, sealed []byte) bool {
	_, err := s.OpenValue(sealed, nil)
	return err == nil
}

func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		names = append(names, filepath.Join(dir, f.Name()))
	}
	return names
}

func handlerState1(t testing.TB, s *Claimed) HandlerState {
	t.Helper()
	hs, err := s.Handlers()
	if err != nil || len(hs) != 1 {
		t.Fatalf("%+v %v", hs, err)
	}
	return hs[0]
}

// itemPages returns the leaf pages with config maps.
func itemPages(t *testing.T, db *DB) (leaves []int) {
	t.Helper()
	err := db.h.view(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, configMaps.ID())
		info := tx.DB().Info()
		records := map[int]int{}
		err := src.contents().Items.Each(func(r layout.Raw) {
			at := uintptr(unsafe.Pointer(unsafe.SliceData(r.Stored))) - info.Data // values lie in the map of the file
			records[int(at)/info.PageSize]++
		})
		for id, n := range records {
			if n > 4 {
				leaves = append(leaves, id)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(leaves)
	return leaves
}

func keyOfObject(o any) string {
	key, _ := cache.MetaNamespaceKeyFunc(o)
	return key
}

// ruin overwrites the head of a page of an open file.
func ruin(t *testing.T, path string, page int) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("not a page of bbolt's, by any means"), int64(page*os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
}

// filled makes a file with some objects and returns its bytes.
func filled(t testing.TB) []byte {
	t.Helper()
	path := testPath(t)
	db := openTest(t, path, Options{Compression: CompressionNone})
	s := claimTest(t, db, Claim{Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}})
	for i := range 40 {
		if err := s.Add(configMap("ns", strings.Repeat("x", i+1), i+1,
			map[string]string{"k": strings.Repeat("v", i*50)})); err != nil {
			t.Fatal(err)
		}
	}
	closeTest(t, db)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ofUncleanBoot is the header of a file that was written without syncs when the
// machine stopped.
func ofUncleanBoot(h *header) { h.BootID, h.Clean, h.SyncedCommits = "another boot", false, false }

// stored makes a closed file with n config maps. One of them changes in each of the
// given commits.
func stored(t *testing.T, path string, n, commits int, o Options) server {
	t.Helper()
	o.Window = time.Nanosecond
	db := openTest(t, path, o)
	s := claimTest(t, db, Claim{})
	srv := server{}
	for i := range n {
		srv.set(configMap("ns", fmt.Sprintf("cm%04d", i), i+1, map[string]string{"words": strings.Repeat("w", 100)}))
	}
	relist(t, s, fmt.Sprint(n+1), RelistOptions{}, srv.list(), 100)
	p := &testProducer{}
	s.Feed.Attach(p)
	for i := range commits {
		srv.set(configMap("ns", "cm0000", n+2+i, map[string]string{"words": fmt.Sprint(i)}))
		p.add(t, s, srv["ns/cm0000"])
		p.wait(t)
	}
	closeTest(t, db)
	return srv
}

func claimTest(t testing.TB, db *DB, c Claim) *Claimed {
	t.Helper()
	if c.Source.Resource == "" {
		c.Source = configMaps
	}
	if c.Example == nil {
		c.Example = &corev1.ConfigMap{}
	}
	if c.IndexVersions == nil { // functions of tests seldom change, and a test need not wait for their indices
		c.IndexVersions = map[string]string{}
		for name := range c.Indexers {
			c.IndexVersions[name] = "1"
		}
	}
	s, err := db.Claim(c)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func closeTest(t testing.TB, db *DB) {
	t.Helper()
	if db.claims.closed {
		return
	}
	r, err := db.Check()
	for i := range r.Sources { // a source that needs a relist is expected
		r.Sources[i].Problems = slices.DeleteFunc(r.Sources[i].Problems, func(p string) bool {
			return strings.HasPrefix(p, "marked degraded")
		})
	}
	if err != nil || !r.Sound() {
		t.Errorf("after the test the file is not sound: %+v %v", r, err)
	}
	for _, s := range db.claims.all() {
		sameInMemory(t, s)
		sameMeta(t, s)
	}
	for _, s := range db.claims.of {
		s.release()
	}
	if err := db.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}

// openTest opens a file whose soundness is checked when the test ends.
func openTest(t testing.TB, path string, o Options) *DB {
	t.Helper()
	if o.Keyset == nil && !o.decrypt {
		o.Keyset = sealtest.Default()
	}
	if o.ObjectMemory == 0 && os.Getenv(inMemory) == "" {
		o.ObjectMemory = -1
	}
	db, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeTest(t, db) })
	return db
}

// inMemory, if set in the environment to anything, makes the tests read objects from
// memory once they are loaded, except where they say otherwise. Otherwise they read the
// file, so that damage is found by the read that meets it.
const inMemory = "KUBEWAKE_TEST_IN_MEMORY"

func testPath(t testing.TB) string { return filepath.Join(t.TempDir(), "test.db") }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// transactions is the number of the last transaction that wrote.
func transactions(t *testing.T, db *DB) (id int) {
	t.Helper()
	if err := db.h.view(func(tx *bolt.Tx) error { id = tx.ID(); return nil }); err != nil {
		t.Fatal(err)
	}
	return id
}

// kept returns once the keeper has looked after the last commit and is at rest.
func kept(t testing.TB, db *DB) {
	t.Helper()
	k := &db.keeper
	// between two looks: there is no signal to wait for
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) { // polls
		k.mu.Lock()
		done := !k.running && k.next.After(db.opts.Clock.Now())
		k.mu.Unlock()
		if done {
			return
		}
	}
	t.Fatal("the keeper did not look")
}

// sameMeta checks that no read has changed the meta that all reads share.
func sameMeta(t testing.TB, s *source) {
	t.Helper()
	last := s.db.parsed.last(s.id)
	if last == nil {
		return
	}
	err := s.db.h.view(func(tx *bolt.Tx) error {
		src, err := s.bucket(tx)
		if err != nil {
			return err
		}
		is, err := src.openMeta(last.stored)
		if err == nil && !reflect.DeepEqual(is, last.meta) {
			t.Errorf("a read has changed the meta: %+v, not %+v", last.meta, is)
		}
		return err
	})
	if err != nil && !errors.Is(err, ErrNoSource) {
		t.Errorf("the meta of %s: %v", s.name, err)
	}
}
