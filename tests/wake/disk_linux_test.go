package wake

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"
)

// powerDisk is an ext4 file system of its own, in a file, whose power can be cut:
// everything that the kernel has not written by then is lost.
type powerDisk struct {
	t       *testing.T
	image   string
	dir     string
	mounted bool
	was     []byte // its content some time ago, see remember
}

// newPowerDisk also takes options of mkfs.ext4.
func newPowerDisk(t *testing.T, size int64, options ...string) *powerDisk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can mount the file system whose power is cut")
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs a program to make the file system whose power is cut: ", err)
		}
	}
	dir := t.TempDir()
	d := &powerDisk{t: t, image: filepath.Join(dir, "image"), dir: filepath.Join(dir, "disk")}
	f, err := os.Create(d.image)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(d.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4",
		append(options, "-q", "-E", "lazy_itable_init=0", d.image)...).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	t.Cleanup(d.drop)
	if out, err := d.mount(); err != nil {
		t.Skipf("a file cannot be mounted here: %v\n%s", err, out)
	}
	return d
}

// mount does without ext4's remedy for programs that rename what they have not
// synced.
func (d *powerDisk) mount() ([]byte, error) {
	out, err := exec.Command("mount", "-t", "ext4", "-o", "loop,noauto_da_alloc", d.image, d.dir).CombinedOutput()
	d.mounted = err == nil
	return out, err
}

// cut is the power failure: from now on all writes, and the file system's own log, are
// lost, and programs get errors.
func (d *powerDisk) cut() {
	d.t.Helper()
	f, err := os.Open(d.dir)
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	const shutdown = 0x8004587d // EXT4_IOC_SHUTDOWN
	noLogFlush := uint32(2)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), shutdown,
		uintptr(unsafe.Pointer(&noLogFlush))); errno != 0 {
		d.t.Fatalf("cut the power of %s: %v", d.dir, errno)
	}
}

// restore mounts the remaining contents. No program may have a file of it open.
func (d *powerDisk) restore() {
	d.t.Helper()
	d.unmount()
	if out, err := d.mount(); err != nil {
		d.t.Fatalf("%v\n%s", err, out)
	}
}

func (d *powerDisk) unmount() {
	d.t.Helper()
	if out, err := exec.Command("umount", d.dir).CombinedOutput(); err != nil {
		d.t.Fatalf("%v\n%s", err, out)
	}
	d.mounted = false
}

// repair mounts a disk that may be damaged, as a boot does. If it is beyond repair, it is
// empty.
func (d *powerDisk) repair() {
	d.t.Helper()
	const repaired, beyond = 3, 4 // bits of the exit code
	out, err := exec.Command("e2fsck", "-f", "-y", d.image).CombinedOutput()
	var code *exec.ExitError
	switch {
	case err == nil:
	case !errors.As(err, &code) || code.ExitCode()&^(repaired|beyond) != 0:
		d.t.Fatalf("e2fsck: %v\n%s", err, out)
	case code.ExitCode()&beyond != 0:
		d.t.Logf("the file system is beyond repair:\n%s", out)
		if out, err := exec.Command("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0",
			d.image).CombinedOutput(); err != nil {
			d.t.Fatalf("mkfs.ext4: %v\n%s", err, out)
		}
	}
	if out, err := d.mount(); err != nil {
		d.t.Fatalf("%v\n%s", err, out)
	}
}

// drop leaves nothing behind, whatever has failed. The loop device goes with
// the mount.
func (d *powerDisk) drop() {
	if !d.mounted {
		return
	}
	if exec.Command("umount", d.dir).Run() == nil {
		return
	}
	if out, err := exec.Command("umount", "-l", d.dir).CombinedOutput(); err != nil {
		d.t.Error(fmt.Errorf("%s stays mounted: %w\n%s", d.dir, err, out))
	}
}
