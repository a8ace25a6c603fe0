//go:build unix

package osfile

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

const (
	noFollow   = syscall.O_NOFOLLOW
	KeepsModes = true
)

// UnsafeFor says what is wrong with a file or folder, "" if nothing.
func UnsafeFor(st fs.FileInfo, readOnly bool) string {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	self := os.Geteuid()
	switch owner := int(s.Uid); {
	case owner != 0 && owner != self && !(self == 0 && readOnly):
		return fmt.Sprintf("belongs to another user (%d; this is %d)", owner, self)
	case st.Mode().Perm()&0o022 != 0:
		return Writable
	}
	return ""
}
