//go:build unix

package serve

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ownedBySelf says whether a file is this user's.
func ownedBySelf(st fs.FileInfo) bool {
	s, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}

// CheckFolder returns an error if another user can replace files in the folder of path, as for
// the served file. A folder with the sticky bit, such as /tmp, is safe.
func CheckFolder(path string) error {
	dir := filepath.Dir(path)
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if s, ok := st.Sys().(*syscall.Stat_t); ok && s.Uid != 0 && !ownedBySelf(st) {
		return fmt.Errorf("%s is another user's (%d), who could replace what is in it; choose another folder", dir,
			s.Uid)
	}
	if st.Mode().Perm()&0o022 != 0 && st.Mode()&fs.ModeSticky == 0 {
		return fmt.Errorf("group or others can write the folder %s, and replace what is in it; "+
			"take that right away (chmod go-w) or choose another folder", dir)
	}
	return nil
}
