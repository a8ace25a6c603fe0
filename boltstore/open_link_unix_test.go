//go:build unix

package boltstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestLinkToNoFile: a path may be a link to a file that is not there, because it never was
// or was removed. The file is made where the link leads, and the links stay.
func TestLinkToNoFile(t *testing.T) {
	dir := t.TempDir()
	real, path := filepath.Join(dir, "real", "test.db"), filepath.Join(dir, "links", "test.db")
	must(t, errors.Join(os.Mkdir(filepath.Dir(real), 0o700), os.Mkdir(filepath.Dir(path), 0o700),
		os.Symlink("real", filepath.Join(dir, "folder")),
		os.Symlink("../folder/test.db", filepath.Join(dir, "links", "second")), os.Symlink("second", path)))
	for range 2 {
		db := openTest(t, path, Options{AllowUnsafePath: true})
		if n := len(claimTest(t, db, Claim{}).ListKeys()); n > 0 {
			t.Error(n, "objects")
		}
		closeTest(t, db)
		if st, err := os.Lstat(path); err != nil || st.Mode().Type() != fs.ModeSymlink || !sameFile(path, real) {
			t.Error("the link is", st, err)
		}
		onlyFile(t, real)
		must(t, os.Remove(real))
	}
}
