package osfile

import "golang.org/x/sys/unix"

// fileSystems are file systems whose locks may not hold between machines or containers,
// or whose syncs may not reach a disk.
var fileSystems = map[uint32]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS", unix.SMB2_SUPER_MAGIC: "SMB",
	unix.FUSE_SUPER_MAGIC: "FUSE", unix.V9FS_MAGIC: "9p", unix.OVERLAYFS_SUPER_MAGIC: "overlay", unix.CEPH_SUPER_MAGIC: "Ceph",
	unix.AFS_SUPER_MAGIC: "AFS", unix.CODA_SUPER_MAGIC: "Coda", 0x786f4256: "vboxsf", 0x0bd00bd0: "Lustre",
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
