package boltstore

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	bolt "go.etcd.io/bbolt"
)

// All that is done to files and folders goes through here, or calls op where
// bbolt does it to a file that is being made, so that tests can look on, and fail
// it, before each operation. Of what is committed to a file in use only the
// header is among them.

// op is called before an operation on path.
func (db *DB) op(name, path string) error {
	if db.opts.op != nil {
		return db.opts.op(name, path)
	}
	return nil
}

func (db *DB) rename(from, to string) error {
	err := db.op("rename", to)
	if err == nil {
		err = os.Rename(from, to)
	}
	return sayBusy(err)
}

// sayBusy says what to do about a rename that failed because its target is a
// mount point, as a file is that a container has by itself.
func sayBusy(err error) error {
	if errors.Is(err, syscall.EBUSY) {
		err = fmt.Errorf("%w: a file that is mounted by itself cannot be replaced; mount its folder", err)
	}
	return err
}

func (db *DB) link(from, to string) error {
	if err := db.op("link", to); err != nil {
		return err
	}
	return os.Link(from, to)
}

func (db *DB) remove(path string) error {
	if err := db.op("remove", path); err != nil {
		return err
	}
	return os.Remove(path)
}

// syncFile brings what b has written to the disk.
func (db *DB) syncFile(b *bolt.DB) error {
	if err := db.op("sync", b.Path()); err != nil {
		return err
	}
	return b.Sync()
}

// write is a transaction in a file that has only a temporary name yet.
func (db *DB) write(b *bolt.DB, fn func(*bolt.Tx) error) error {
	if err := db.op("write", b.Path()); err != nil {
		return err
	}
	return b.Update(fn)
}

// syncDir makes names in a folder survive a power failure.
func (db *DB) syncDir(dir string) error {
	if err := db.op("sync", dir); err != nil {
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

// inherit gives a file that is to take the place of db's the mode and owner of
// that.
func (db *DB) inherit(name string) error {
	st, err := db.h.now.Load().f.Stat()
	if err != nil {
		return err
	}
	return likeFile(name, st)
}

// tryInherit does that, of the file from, where a file that is damaged has to
// be replaced, whoever can.
func (db *DB) tryInherit(name string, from os.FileInfo) {
	if err := likeFile(name, from); err != nil {
		db.log().Error(err, "A file that replaces a damaged one, or is a copy of it, does not have its mode and owner", "file", name)
	}
}

func likeFile(name string, st os.FileInfo) error {
	if err := os.Chmod(name, st.Mode().Perm()); err != nil {
		return err
	}
	if err := sameOwner(name, st); err != nil {
		return fmt.Errorf("the new file cannot be given to the owner of the old one; run as that user: %w", err)
	}
	return nil
}
