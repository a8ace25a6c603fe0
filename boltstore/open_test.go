package boltstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

func TestOpenBadFiles(t *testing.T) {
	good := filled(t)
	flipped := bytes.Clone(good)
	for _, at := range []int{16, 4096 + 16} { // both meta pages
		flipped[at+8] ^= 0xff
	}
	tests := []struct {
		name    string
		content func(path string) error
		want    error
		kept    bool // in a file set aside
	}{
		{name: "empty", content: write(nil), want: ErrDamaged},
		{name: "erased flash", content: write(bytes.Repeat([]byte{0xff}, 100_000)), want: ErrDamaged, kept: true},
		{name: "zeros", content: write(make([]byte, 100_000)), want: ErrDamaged, kept: true},
		{name: "metas lost", content: write(append(make([]byte, 2*os.Getpagesize()), good[2*os.Getpagesize():]...)),
			want: ErrDamaged, kept: true},
		{name: "metas overwritten", content: write(append(bytes.Repeat([]byte("text"), os.Getpagesize()/2),
			good[2*os.Getpagesize():]...)), want: ErrDamaged, kept: true},
		{name: "header lost", content: withoutHeader(good), want: ErrDamaged, kept: true},
		{name: "text", content: write([]byte("hello")), want: ErrForeign, kept: true},
		{name: "long text", content: write(bytes.Repeat([]byte("hello "), 5000)), want: ErrForeign, kept: true},
		{name: "truncated", content: write(good[:100_000]), want: ErrDamaged, kept: true},
		{name: "truncated in the meta pages", content: write(good[:5000]), want: ErrDamaged, kept: true},
		{name: "metas flipped", content: write(flipped), want: ErrDamaged, kept: true},
		{name: "another program's", content: otherBolt, want: ErrForeign, kept: true},
		{name: "newer format", content: newerFormat, want: ErrNewerFormat, kept: true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			path := testPath(t)
			if err := tc.content(path); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Open(path, Options{ReadOnly: true}); !errors.Is(err, tc.want) ||
				!strings.Contains(err.Error(), path) {
				t.Fatalf("read-only: %v", err)
			}
			if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
				t.Fatalf("read-only changed the file: %v", err)
			}
			o := Options{}
			if tc.want == ErrForeign {
				if _, err := Open(path, o); !errors.Is(err, ErrForeign) {
					t.Fatalf("it is replaced: %v", err)
				}
				o.ReplaceForeign = true
			}
			db := openTest(t, path, o)
			if got := len(db.AsidePaths()); got != map[bool]int{true: 1}[tc.kept] {
				t.Fatalf("set aside %q", db.AsidePaths())
			}
			if tc.kept {
				aside, err := os.ReadFile(db.AsidePaths()[0])
				if err != nil || !bytes.Equal(before, aside) {
					t.Fatalf("the file set aside is not what was there: %v", err)
				}
			}
			if err := claimTest(t, db, Claim{}).Add(configMap("a", "b", 1, nil)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// withoutHeader makes a kubewake file without its header bucket.
func withoutHeader(good []byte) func(string) error {
	return func(path string) error {
		if err := os.WriteFile(path, good, 0o600); err != nil {
			return err
		}
		b, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			return err
		}
		err = b.Update(func(tx *bolt.Tx) error { return tx.DeleteBucket(layout.BucketFile) })
		return errors.Join(err, b.Close())
	}
}

func write(b []byte) func(string) error {
	return func(path string) error { return os.WriteFile(path, b, 0o600) }
}

func otherBolt(path string) error {
	b, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	err = b.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte("theirs")); return err })
	return errors.Join(err, b.Close())
}

func newerFormat(path string) error {
	b, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		return err
	}
	err = b.Update(func(tx *bolt.Tx) error {
		f, err := tx.CreateBucket(layout.BucketFile)
		if err != nil {
			return err
		}
		return format.Put(f, layout.KeyHeader, header{Format: formatVersion + 1})
	})
	return errors.Join(err, b.Close())
}

// TestForeignStays: another program's file is not touched unless the options ask for
// it.
func TestForeignStays(t *testing.T) {
	path := testPath(t)
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{}); !errors.Is(err, ErrForeign) {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "precious" {
		t.Fatalf("file is now %q", b)
	}
	if m, err := filepath.Glob(path + "*"); err != nil || len(m) != 1 {
		t.Fatalf("left behind: %q, %v", m, err)
	}
}

// TestForeignBuckets: a file of another program stays, even if some of its buckets have
// the same names as ours.
func TestForeignBuckets(t *testing.T) {
	path := testPath(t)
	b, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = b.Update(func(tx *bolt.Tx) error {
		own, err := tx.CreateBucket([]byte("precious"))
		for _, name := range [][]byte{layout.BucketItems, layout.BucketJournal} {
			if err == nil {
				_, err = own.CreateBucket(name)
			}
		}
		return err
	})
	if err := errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	if db, err := Open(path, Options{}); !errors.Is(err, ErrForeign) {
		t.Errorf("%v %v", db, err)
	}
	if m, err := filepath.Glob(path + "*"); err != nil || len(m) != 1 {
		t.Fatalf("left behind: %q, %v", m, err)
	}
}

// TestLostRoot: if a file's root is lost, and all but one page of a source, that page
// shows that the file is ours.
func TestLostRoot(t *testing.T) {
	path := testPath(t)
	b, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = b.Update(func(tx *bolt.Tx) error {
		lost, err := tx.CreateBucket([]byte("lost"))
		if err != nil {
			return err
		}
		_, err = layout.Tree{Root: lost}.CreateContents()
		return err
	})
	if err := errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	openTest(t, path, Options{})
	if m, err := filepath.Glob(path + ".corrupt-*"); err != nil || len(m) != 1 {
		t.Fatalf("set aside: %q, %v", m, err)
	}
}

func TestOpenLocked(t *testing.T) {
	path := testPath(t)
	openTest(t, path, Options{})
	if _, err := Open(path, Options{LockTimeout: -1}); !errors.Is(err, ErrLocked) ||
		!strings.Contains(err.Error(), path) {
		t.Fatal(err)
	}
}

func TestOpenMissing(t *testing.T) {
	path := testPath(t)
	if _, err := Open(path, Options{ReadOnly: true}); !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), path) {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(path, "no", "folder"), Options{}); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Dir(path)); err != nil || !st.IsDir() {
		t.Fatal(err)
	}
	db := openTest(t, path, Options{})
	if st, err := os.Stat(db.Path()); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v %v", st.Mode(), err)
	}
	if m, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(m) != 0 {
		t.Fatalf("creating left %q", m)
	}
}

// TestUncleanBoot: a file written without syncs, whose machine went down before
// it was closed, is verified before use.
func TestUncleanBoot(t *testing.T) {
	if osfile.BootID() == "" {
		t.Skip("this system does not tell its boot id")
	}
	path := testPath(t)
	db := openTest(t, path, Options{Durability: DurabilityProcess})
	s := claimTest(t, db, Claim{})
	for i := range 10 {
		if err := s.Add(configMap("ns", strings.Repeat("x", i+1), i+1, nil)); err != nil {
			t.Fatal(err)
		}
	}
	crashed, err := os.ReadFile(path) // as it is while no one writes
	if err != nil {
		t.Fatal(err)
	}
	for _, lost := range []bool{false, true} {
		path := testPath(t)
		if err := os.WriteFile(path, crashed, 0o600); err != nil {
			t.Fatal(err)
		}
		b, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = b.Update(func(tx *bolt.Tx) error {
			var h header
			if err := format.Get(tx.Bucket(layout.BucketFile), layout.KeyHeader, &h); err != nil {
				return err
			}
			if h.Clean || h.BootID != osfile.BootID() {
				t.Errorf("the file in use says %+v", h)
			}
			h.BootID = "another boot"
			if lost { // a page that never reached the disk
				src, _ := db.h.source(tx, configMaps.ID())
				if err := src.contents().Items.Delete([]byte("\x01ns/xxx")); err != nil {
					return err
				}
			}
			return format.Put(tx.Bucket(layout.BucketFile), layout.KeyHeader, h)
		})
		if err := errors.Join(err, b.Close()); err != nil {
			t.Fatal(err)
		}
		again := openTest(t, path, Options{})
		if got := len(again.AsidePaths()); got != map[bool]int{true: 1}[lost] {
			t.Errorf("lost %v: set aside %q", lost, again.AsidePaths())
		}
	}
}

// TestDamagedMeta: a claim sets a source with a damaged meta aside, and goes on with an
// empty one.
func TestDamagedMeta(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	if err := s.Add(configMap("a", "b", 1, nil)); err != nil {
		t.Fatal(err)
	}
	s.Release()
	damageMeta(t, db)
	s = claimTest(t, db, Claim{})
	if s.State().Synced || len(s.ListKeys()) != 0 {
		t.Fatalf("%+v", s.State())
	}
	if err := s.Add(configMap("a", "b", 1, nil)); err != nil {
		t.Fatal(err)
	}
}

// damageMeta flips a bit in the meta of the config maps.
func damageMeta(t *testing.T, db *DB) {
	t.Helper()
	err := db.h.update(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, configMaps.ID())
		v := bytes.Clone(src.Root.Get(layout.KeyMeta))
		v[5] ^= 1
		return src.Root.Put(layout.KeyMeta, v)
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
}

// TestStatesOfDamagedSource: a source with a damaged meta is listed as degraded, and does
// not hide the others. While it is claimed its state comes from memory.
func TestStatesOfDamagedSource(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	if err := s.Add(configMap("a", "b", 1, nil)); err != nil {
		t.Fatal(err)
	}
	other := claimTest(t, db, Claim{Source: inNamespace("x")})
	if err := other.Add(configMap("x", "c", 2, nil)); err != nil {
		t.Fatal(err)
	}
	damageMeta(t, db)
	shown := func(damaged Source, objects uint64) {
		t.Helper()
		states, err := db.States()
		if err != nil || len(states) != 2 {
			t.Fatalf("%+v %v", states, err)
		}
		for _, st := range states {
			switch {
			case st.Source == inNamespace("x") && st.Objects == 1 && st.Degraded == "" && st.Namespaced:
			case st.Source == damaged && st.Objects == objects && strings.Contains(st.Degraded, "damaged"):
			default:
				t.Errorf("%+v", st)
			}
		}
	}
	shown(configMaps, 1)
	s.Release()
	shown(Source{Resource: configMaps.ID()}, 0)
	closeTest(t, claimTest(t, db, Claim{}).db) // the claim sets it aside
}

// TestOpenTwice: where the system names who has a file, the error says that it is this
// process.
func TestOpenTwice(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	_, err := Open(path, Options{LockTimeout: time.Millisecond})
	if !errors.Is(err, ErrLocked) {
		t.Fatal(err)
	}
	if named := osfile.Holder(path) != ""; strings.Contains(err.Error(),
		" has the file open already; share the DB") != named {
		t.Error(err)
	}
	closeTest(t, db)
}
