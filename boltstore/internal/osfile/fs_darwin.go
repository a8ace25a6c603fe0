package osfile

import (
	"strings"

	"golang.org/x/sys/unix"
)

// Untrusted names the file system of a folder if its locks or syncs cannot be
// relied on.
func Untrusted(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return ""
	}
	name := unix.ByteSliceToString(st.Fstypename[:])
	for _, bad := range []string{"nfs", "smbfs", "afpfs", "webdav", "cifs", "fuse", "virtiofs"} {
		if strings.Contains(name, bad) {
			return name
		}
	}
	return ""
}

// FastCommits says whether the file system of a folder may lose synced writes.
func FastCommits(string) bool { return false }
