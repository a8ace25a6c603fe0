//go:build unix

package boltstore

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kubewake/kubewake/boltstore/internal/beside"
)

// ruined returns the folder of a file with 200 objects and a ruined page.
func ruined(t *testing.T) (dir string) {
	t.Helper()
	path := testPath(t)
	closeRuined(t, some(t, path, Options{}).db)
	return filepath.Dir(path)
}

// TestReplaceKeepsLink: if the path is a link to a damaged file, the new file is where
// the link leads, and the link stays.
func TestReplaceKeepsLink(t *testing.T) {
	real := filepath.Join(ruined(t), "test.db")
	path := filepath.Join(t.TempDir(), "link.db")
	if err := os.Symlink(real, path); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(real)
	if err != nil {
		t.Fatal(err)
	}
	for life := range 2 {
		db := openTest(t, path, Options{AllowUnsafePath: true})
		if n := len(db.AsidePaths()); n != 1-life {
			t.Errorf("life %d: %d files were set aside", life, n)
		}
		for _, name := range db.AsidePaths() {
			if b, err := os.ReadFile(name); err != nil || !bytes.Equal(b, before) {
				t.Errorf("%s is not what was there: %v", name, err)
			}
		}
		if st, err := os.Lstat(path); err != nil || st.Mode().Type() != fs.ModeSymlink || !sameFile(path, real) {
			t.Errorf("life %d: the link is %v %v", life, st, err)
		}
		if n := len(claimTest(t, db, Claim{Indexers: indexers}).ListKeys()); n < 50 || n == 200 {
			t.Errorf("life %d: %d objects", life, n)
		}
		closeTest(t, db)
	}
	for _, dir := range []string{filepath.Dir(real), filepath.Dir(path)} {
		for _, name := range filesIn(t, dir) {
			if name != real && name != path && !strings.HasPrefix(name, path+beside.AsideInfix) {
				t.Errorf("left behind: %s", name)
			}
		}
	}
}

// TestReplaceInOneStep: the damaged file or the new one is at the path at any moment,
// even on a file system without links, and whichever operation fails.
func TestReplaceInOneStep(t *testing.T) {
	made := ruined(t)
	damaged, err := os.ReadFile(filepath.Join(made, "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	errOp := errors.New("the disk fails")
	for _, links := range []bool{true, false} {
		for k := 1; ; k++ {
			path := filepath.Join(copied(t, made), "test.db")
			n := 0
			o := Options{}
			o.op = func(op, _ string) error {
				if _, err := os.Lstat(path); err != nil {
					t.Errorf("links %v, failure %d: before operation %d, %s: %v", links, k, n+1, op, err)
				}
				if op == "link" && !links {
					return unix.EPERM
				}
				if n++; n == k {
					return errOp
				}
				return nil
			}
			db, err := Open(path, o)
			o.op = nil
			switch {
			case err == nil:
				db.files.Before = nil
				closeTest(t, db)
			case !errors.Is(err, errOp):
				t.Fatalf("links %v, failure %d: %v", links, k, err)
			default:
				if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, damaged) {
					t.Errorf("links %v, failure %d: the file is not as it was: %v", links, k, err)
				}
				if all := filesIn(t, filepath.Dir(path)); len(all) != 1 && n == k {
					t.Errorf("links %v, failure %d: left behind: %q", links, k, all)
				}
			}
			db = openTest(t, path, Options{})
			if n := len(claimTest(t, db, Claim{Indexers: indexers}).ListKeys()); n < 50 || n == 200 {
				t.Errorf("links %v, failure %d: %d objects were saved", links, k, n)
			}
			all := db.beside.Aside()
			if len(all) != 1 {
				t.Fatalf("links %v, failure %d: set aside %q", links, k, all)
			}
			if b, err := os.ReadFile(all[0]); err != nil || !bytes.Equal(b, damaged) {
				t.Errorf("links %v, failure %d: what was set aside is not what was there: %v", links, k, err)
			}
			closeTest(t, db)
			if n < k {
				if k < 6 {
					t.Errorf("only %d operations", n)
				}
				break
			}
		}
	}
}

func sameFile(a, b string) bool {
	is, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(is, other)
}
