//go:build unix && !linux

package live

import "golang.org/x/sys/unix"

// setMode does nothing: here only a bound socket has a mode.
func setMode(uintptr) error { return nil }

// setModeAt sets the mode of a bound socket, and follows no symlink that has replaced it.
func setModeAt(path string) error {
	return unix.Fchmodat(unix.AT_FDCWD, path, 0o600, unix.AT_SYMLINK_NOFOLLOW)
}
