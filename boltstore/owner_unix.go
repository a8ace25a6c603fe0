//go:build unix

package boltstore

import (
	"io/fs"
	"os"
	"syscall"
)

// sameOwner gives the file to the owner of the one that st describes.
func sameOwner(path string, st fs.FileInfo) error {
	want, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	is, err := os.Stat(path)
	if err != nil {
		return err
	}
	if have, ok := is.Sys().(*syscall.Stat_t); ok && have.Uid == want.Uid && have.Gid == want.Gid {
		return nil
	}
	return os.Chown(path, int(want.Uid), int(want.Gid))
}
