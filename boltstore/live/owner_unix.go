//go:build unix

package live

import (
	"errors"
	"io/fs"
	"syscall"
)

// ownerOf returns the user that owns the file.
func ownerOf(st fs.FileInfo) (uid int, ok bool) {
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(s.Uid), true
}

// refused says whether err means that no process listens on a socket.
func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }
