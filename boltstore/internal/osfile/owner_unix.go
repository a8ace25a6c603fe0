//go:build unix

package osfile

import (
	"io/fs"
	"os"
	"syscall"
)

// sameOwner gives the file at path the owner and group that st has. group says whether it
// has that group. It does not fail for a group that has no permissions.
func sameOwner(path string, st fs.FileInfo) (group bool, err error) {
	want, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return true, nil
	}
	is, err := os.Stat(path)
	if err != nil {
		return false, err
	}
	have, ok := is.Sys().(*syscall.Stat_t)
	if ok && have.Uid == want.Uid && have.Gid == want.Gid {
		return true, nil
	}
	if err = os.Chown(path, int(want.Uid), int(want.Gid)); err == nil {
		return true, nil
	}
	group = os.Chown(path, -1, int(want.Gid)) == nil // as a member of the group may
	if ok && have.Uid == want.Uid && st.Mode().Perm()&0o070 == 0 {
		err = nil
	}
	return group, err
}
