package informer

import (
	"os"
	"path/filepath"
	"syscall"
)

// smallDisk makes dir a file system of its own, if that is allowed.
func smallDisk(dir string) bool {
	return syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=32m") == nil
}

func removeDisk(dir string) error { return syscall.Unmount(dir, syscall.MNT_DETACH) }

// fillDisk leaves no block free, whatever is written meanwhile.
func fillDisk(dir string) error {
	f, err := os.OpenFile(filepath.Join(dir, "filler"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	for b := make([]byte, 64<<10); len(b) > 0; {
		if _, err := f.Write(b); err != nil {
			b = b[:len(b)/2]
		}
	}
	return f.Close()
}

func freeDisk(dir string) error { return os.Remove(filepath.Join(dir, "filler")) }
