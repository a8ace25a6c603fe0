//go:build unix

package osfile

import (
	"io/fs"
	"os"
	"syscall"
)

// sameOwner gives the file at path the owner and group that st has. It does not fail
// for a group that has no permissions.
func sameOwner(path string, st fs.FileInfo) error {
	want, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	is, err := os.Stat(path)
	if err != nil {
		return err
	}
	have, ok := is.Sys().(*syscall.Stat_t)
	if ok && have.Uid == want.Uid && have.Gid == want.Gid {
		return nil
	}
	err = os.Chown(path, int(want.Uid), int(want.Gid))
	if err != nil && ok && have.Uid == want.Uid && st.Mode().Perm()&0o070 == 0 {
		return nil
	}
	return err
}
