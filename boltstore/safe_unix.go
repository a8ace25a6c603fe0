//go:build unix

package boltstore

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

const (
	noFollow   = syscall.O_NOFOLLOW
	keepsModes = true
)

// unsafeFor says what is wrong with a file or folder, "" if nothing.
func unsafeFor(st fs.FileInfo, readOnly bool) string {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	self := os.Geteuid()
	switch owner := int(s.Uid); {
	case owner != 0 && owner != self && !(self == 0 && readOnly):
		return fmt.Sprintf("belongs to another user (%d; this is %d)", owner, self)
	case st.Mode().Perm()&0o022 != 0:
		return writable
	}
	return ""
}
