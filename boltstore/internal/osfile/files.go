package osfile

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Files makes, renames and removes files. The zero value is ready to use.
//
// Before each operation it calls Before, if set, with "create", "write", "sync",
// "commit", "rename", "exchange", "link", "mkdir", "lock" or "remove" and the path. An
// error from Before becomes the operation's. Tests use this to watch operations and to make
// them fail.
type Files struct {
	Before func(name, path string) error
	// Slow, if set, is told of an operation that has taken a second and is not over.
	Slow func(name, path string)
}

// Timed runs an operation of that name, with Slow.
func (f Files) Timed(name, path string, operation func() error) error {
	if f.Slow != nil {
		defer time.AfterFunc(time.Second, func() { f.Slow(name, path) }).Stop()
	}
	return operation()
}

// Op announces an operation that the caller does itself.
func (f Files) Op(name, path string) error {
	if f.Before != nil {
		return f.Before(name, path)
	}
	return nil
}

// SayBusy adds to the error of a rename what to do if the target is a mount point, such as
// a container's single file.
func SayBusy(err error) error {
	if errors.Is(err, syscall.EBUSY) {
		err = fmt.Errorf("%w: a file that is mounted by itself cannot be replaced; mount its folder", err)
	}
	return err
}

// SaySync adds to an error of bbolt's the operation and the file, if it is that of a sync:
// bbolt returns the system's number alone.
func SaySync(err error, path string) error {
	if errno, ok := err.(syscall.Errno); ok {
		return &os.PathError{Op: "sync", Path: path, Err: errno}
	}
	return err
}

// SayLong adds to an error what to do if a file's name is too long for the files beside
// it. Their names have up to 50 bytes more.
func SayLong(err error) error {
	if errors.Is(err, syscall.ENAMETOOLONG) {
		err = fmt.Errorf("%w: files beside it have longer names; give it a name of at most 200 bytes", err)
	}
	return err
}

// Link is os.Link.
func (f Files) Link(from, to string) error {
	if err := f.Op("link", to); err != nil {
		return err
	}
	return os.Link(from, to)
}

// Mkdir is os.Mkdir, for this user alone.
func (f Files) Mkdir(path string) error {
	if err := f.Op("mkdir", path); err != nil {
		return err
	}
	return os.Mkdir(path, 0o700)
}

// Remove is os.Remove.
func (f Files) Remove(path string) error {
	if err := f.Op("remove", path); err != nil {
		return err
	}
	return os.Remove(path)
}

// Sync syncs the writes of b to disk.
func (f Files) Sync(b *bolt.DB) error {
	if err := f.Op("sync", b.Path()); err != nil {
		return err
	}
	return SaySync(b.Sync(), b.Path())
}

// Write runs a transaction in a file that still has its temporary name.
func (f Files) Write(b *bolt.DB, fn func(*bolt.Tx) error) error {
	if err := f.Op("write", b.Path()); err != nil {
		return err
	}
	return b.Update(fn)
}

// SyncDir makes the names in a folder survive a power failure.
func (f Files) SyncDir(dir string) error {
	if err := f.Op("sync", dir); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && runtime.GOOS != "windows" {
		return err
	}
	return nil
}

// Like gives the file called name the owner, group and mode of st. If it cannot get that
// group, it gets no group permissions. The error says so, or that the owner differs.
func Like(name string, st os.FileInfo) error {
	group, err := sameOwner(name, st)
	if err != nil {
		err = fmt.Errorf("the new file cannot be given to the owner of the old one; run as that user: %w", err)
	}
	mode := st.Mode().Perm()
	if !group {
		mode &^= 0o070
	}
	return errors.Join(err, os.Chmod(name, mode)) // last: until then only this user can read the file
}

// IsAt says whether path leads to the open file f.
func IsAt(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Stat(path)
	return err == nil && os.SameFile(a, b)
}

// IsEmpty says whether there is a regular file of no bytes at path.
func IsEmpty(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular() && st.Size() == 0
}

// UnknownBoot stands for a boot that the system does not name. Two of them may be
// different boots.
const UnknownBoot = "unknown"
