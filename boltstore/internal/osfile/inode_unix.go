//go:build unix

package osfile

import (
	"os"
	"syscall"
)

// Inode is the number of a file among those of its file system, 0 if it is not
// known.
func Inode(st os.FileInfo) uint64 {
	if st == nil {
		return 0
	}
	if s, ok := st.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Ino)
	}
	return 0
}
