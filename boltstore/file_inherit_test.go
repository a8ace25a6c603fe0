//go:build unix

package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// some stores a few pages of config maps.
func some(t *testing.T, path string, o Options) *Claimed {
	t.Helper()
	s := claimTest(t, openTest(t, path, o), Claim{Indexers: indexers})
	srv := server{}
	for i := range 200 {
		srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1, map[string]string{"words": "w"}))
	}
	relist(t, s, "500", RelistOptions{}, srv.list(), 50)
	return s
}

// closeRuined closes the file and ruins a page of it.
func closeRuined(t *testing.T, db *DB) {
	t.Helper()
	page := itemPages(t, db)[1]
	closeTest(t, db)
	ruin(t, db.path, page)
}

// TestSalvageGoesOnWithRotation: a due data key is still made after a damaged file was
// replaced, open or closed.
func TestSalvageGoesOnWithRotation(t *testing.T) {
	errCut := errors.New("cut here")
	for name, damage := range map[string]func(t *testing.T, path string, o Options){
		"none": func(*testing.T, string, Options) {},
		"open": func(t *testing.T, path string, o Options) {
			o.step = func(string) error { return errCut }
			o.ObjectMemory = -1 // the damage is noticed by a read of the file
			db := openTest(t, path, o)
			s := claimTest(t, db, Claim{Indexers: indexers})
			ruin(t, path, itemPages(t, db)[1])
			s.List()
			killed(t, db)
		},
		"closed": func(t *testing.T, path string, o Options) {
			o.step = func(string) error { return errCut }
			closeRuined(t, openTest(t, path, o)) // the keys are sealed by the new primary key
		},
	} {
		t.Run(name, func(t *testing.T) {
			file, path := filepath.Join(t.TempDir(), "keyset.json"), testPath(t)
			if err := seal.Generate(file); err != nil {
				t.Fatal(err)
			}
			o := Options{Keyset: seal.File(file)}
			s := some(t, path, o)
			before := sealedBy(t, s.db.h.seal)
			closeTest(t, s.db)
			if err := seal.Rotate(file); err != nil {
				t.Fatal(err)
			}
			damage(t, path, o)
			db := openTest(t, path, o)
			if name != "none" && len(db.AsidePaths()) != 1 {
				t.Fatal("not set aside")
			}
			if opens(db.h.seal, before) {
				t.Fatal("the data key was not rotated")
			}
			if h, err := db.h.header(); err != nil || h.Rotate {
				t.Fatal("they would be rotated again", err)
			}
			if n := len(claimTest(t, db, Claim{Indexers: indexers}).ListKeys()); n < 50 {
				t.Fatalf("%d objects", n)
			}
		})
	}
}

// TestReplacementKeepsOwner: a file that replaces another one, and the copy of a damaged one,
// keep the old file's owner, whoever ran the program.
func TestReplacementKeepsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	const uid, gid, mode = 12345, 12346, 0o640
	ks := sealtest.Keyset()
	open := func(t *testing.T, path string, o Options) *DB {
		o.AllowUnsafePath = true
		return openTest(t, path, o)
	}
	for name, tc := range map[string]struct {
		before Options
		change func(t *testing.T, path string)
	}{
		"encrypt": {Options{decrypt: true}, func(t *testing.T, path string) { open(t, path, Options{Keyset: ks}) }},
		"decrypt": {Options{Keyset: ks}, func(t *testing.T, path string) {
			open(t, path, Options{Keyset: ks, decrypt: true})
		}},
		"rotate": {Options{Keyset: ks}, func(t *testing.T, path string) {
			changeHeader(t, path, keysDue)
			open(t, path, Options{Keyset: ks})
		}},
		"compact": {Options{}, func(t *testing.T, path string) {
			if _, err := open(t, path, Options{}).Compact(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}},
		"salvage": {Options{}, func(t *testing.T, path string) {
			closeRuined(t, open(t, path, Options{}))
			open(t, path, Options{})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path := testPath(t)
			closeTest(t, some(t, path, tc.before).db)
			before, err := os.Stat(path)
			if err := errors.Join(err, os.Chown(path, uid, gid), os.Chmod(path, mode)); err != nil {
				t.Fatal(err)
			}
			tc.change(t, path)
			if now, err := os.Stat(path); err != nil || os.SameFile(before, now) {
				t.Fatal("the file was not replaced", err)
			}
			files, err := filepath.Glob(path + "*")
			if err != nil || (len(files) == 2) != (name == "salvage") {
				t.Fatal(files, err)
			}
			for _, f := range files {
				st, err := os.Stat(f)
				if err != nil {
					t.Fatal(err)
				}
				if o := st.Sys().(*syscall.Stat_t); o.Uid != uid || o.Gid != gid || st.Mode().Perm() != mode {
					t.Errorf("%s: of %d:%d, %v", f, o.Uid, o.Gid, st.Mode())
				}
			}
		})
	}
}
