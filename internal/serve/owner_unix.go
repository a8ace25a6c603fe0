//go:build unix

package serve

import (
	"io/fs"
	"os"
	"syscall"
)

// ownedBySelf says whether a file is this user's.
func ownedBySelf(st fs.FileInfo) bool {
	s, ok := st.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) == os.Geteuid()
}
