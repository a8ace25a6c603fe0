package osfile

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// fileSystems are file systems whose locks may not hold between machines or containers,
// or whose syncs may not reach a disk.
var fileSystems = map[uint32]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS",
	unix.SMB2_SUPER_MAGIC: "SMB",
	unix.FUSE_SUPER_MAGIC: "FUSE", unix.V9FS_MAGIC: "9p", unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.CEPH_SUPER_MAGIC: "Ceph",
	unix.AFS_SUPER_MAGIC:  "AFS", unix.CODA_SUPER_MAGIC: "Coda", 0x786f4256: "vboxsf", 0x0bd00bd0: "Lustre",
}

// Untrusted names the file system of a folder if its locks or syncs cannot be
// relied on.
func Untrusted(dir string) string {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return ""
	}
	return fileSystems[uint32(st.Type)] // the type's width depends on the machine
}

// FastCommits says whether the file system of a folder is an ext4 that makes fast commits:
// it may lose synced writes when the power fails. Before its first sync since it was mounted
// this does not show.
func FastCommits(dir string) bool {
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return false
	}
	dev := uint64(st.Dev) // the type's width depends on the machine
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return false
	}
	b, err := os.ReadFile(filepath.Join("/proc/fs/ext4", filepath.Base(device), "fc_info"))
	if err != nil {
		return false
	}
	var made, whole int // fast commits, and those that had to be whole ones
	_, err = fmt.Sscanf(string(b), "fc stats:\n%d commits\n%d ineligible", &made, &whole)
	return err == nil && made+whole > 0
}
