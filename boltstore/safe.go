package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// checkPath refuses a path at which another user can change the file or put
// another in its place: one that is a symlink, that another user but root
// owns, or that group or others can write. In a folder with the sticky bit,
// such as /tmp, others cannot touch what is ours. Only the last folder is
// looked at. Root may read any user's file.
func (db *DB) checkPath() error {
	if db.opts.AllowUnsafePath {
		return nil
	}
	dir := filepath.Dir(db.path)
	st, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // which the caller will find out
	}
	if err != nil {
		return err
	}
	if why := unsafeFor(st, db.opts.ReadOnly); why != "" && !(why == writable && st.Mode()&fs.ModeSticky != 0) {
		return fmt.Errorf("%w: the folder %s %s", ErrUnsafe, dir, why)
	}
	st, err = os.Lstat(db.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() == fs.ModeSymlink {
		return fmt.Errorf("%w: it is a symlink", ErrUnsafe)
	}
	return checkFile(st, db.opts.ReadOnly)
}

func checkFile(st fs.FileInfo, readOnly bool) error {
	if why := unsafeFor(st, readOnly); why != "" {
		return fmt.Errorf("%w: it %s", ErrUnsafe, why)
	}
	return nil
}

const writable = "can be written by group or others"

// openSafe is os.OpenFile for bbolt: what it opens is what checkPath approves
// of, also if it was exchanged in between, and gets mode 0600.
func openSafe(readOnly bool) func(string, int, os.FileMode) (*os.File, error) {
	return func(name string, flag int, perm os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(name, flag|noFollow, perm)
		if err != nil {
			return nil, err
		}
		st, err := f.Stat()
		if err == nil {
			err = checkFile(st, readOnly)
		}
		if err == nil && !readOnly && st.Mode().Perm()&0o077 != 0 && keepsModes {
			err = f.Chmod(0o600)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
}
