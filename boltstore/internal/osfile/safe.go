package osfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// CheckPath returns [faults.ErrUnsafe] for a path at which another user can change or
// replace the file. Such a path is a symlink, or a file or folder that group or others
// can write, or that a user other than this one and root owns. A folder with the sticky
// bit, such as /tmp, is safe. Only the last folder counts. Root may read any user's
// file.
func CheckPath(path string, readOnly bool) error {
	dir := filepath.Dir(path)
	st, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the caller meets the error when it opens the file
	}
	if err != nil {
		return err
	}
	if why := UnsafeFor(st, readOnly); why != "" && !(why == Writable && st.Mode()&fs.ModeSticky != 0) {
		return fmt.Errorf("%w: the folder %s %s", faults.ErrUnsafe, dir, why)
	}
	st, err = os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() == fs.ModeSymlink {
		return fmt.Errorf("%w: it is a symlink", faults.ErrUnsafe)
	}
	return checkFile(st, readOnly)
}

func checkFile(st fs.FileInfo, readOnly bool) error {
	if why := UnsafeFor(st, readOnly); why != "" {
		return fmt.Errorf("%w: it %s", faults.ErrUnsafe, why)
	}
	return nil
}

// Writable is the answer of [UnsafeFor] for a file that others can write.
const Writable = "can be written by group or others"

// OpenSafe returns an os.OpenFile for bbolt that opens only files that [CheckPath]
// accepts, even if the file was replaced after that check. It gives the file mode 0600.
func OpenSafe(readOnly bool) func(string, int, os.FileMode) (*os.File, error) {
	return func(name string, flag int, perm os.FileMode) (*os.File, error) {
		f, err := os.OpenFile(name, flag|noFollow, perm)
		if err != nil {
			return nil, err
		}
		st, err := f.Stat()
		if err == nil {
			err = checkFile(st, readOnly)
		}
		if err == nil && !readOnly && st.Mode().Perm()&0o077 != 0 && KeepsModes {
			err = f.Chmod(0o600)
		}
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
}
