package boltstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// create makes an empty file, encrypted if the options ask for it.
func (db opening) create() error {
	if err := db.makeFolder(); err != nil {
		return err
	}
	_, keys, err := db.converting().newKeys()
	if err != nil {
		return err
	}
	// An empty file may be the rest of one that plain handlers know.
	return db.createFile(header{Keys: keys, NamesLost: osfile.IsEmpty(db.path)})
}

// makeFolder makes the file's folder, for this user alone, if only that is missing. The
// root of a pod's volume is open to other users, and a container may have no shell.
func (db opening) makeFolder() error {
	dir := filepath.Dir(db.path)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil // making the file will show what is wrong
	}
	if err := db.files.Mkdir(dir); errors.Is(err, fs.ErrExist) {
		return db.checkPath() // another process has made it
	} else if err != nil {
		return err
	}
	return db.files.SyncDir(filepath.Dir(dir))
}

// createFile makes an empty kubewake file under a temporary name, syncs it and links it
// to the path: bbolt's own creation is not crash-safe (bbolt#567). A file that another
// process has made meanwhile stays.
func (db opening) createFile(h header) error {
	path := db.replacing().realPath()
	name, err := db.replacing().makeFile(path, h, nil)
	if err != nil {
		return err
	}
	if err = db.files.Link(name, path); err != nil {
		err = db.takeEmpty(name, path)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrMoved) {
		err = nil // another process made the file, and may have removed ours as a leftover; its file will be opened
	}
	if rerr := db.files.Remove(name); !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return errors.Join(err, db.files.SyncDir(filepath.Dir(path)))
}

// takeEmpty renames a file to path if it could not be linked: an empty file is there, or
// the file system has no links. Without links, it first makes an empty file, whose lock
// keeps other processes out. A file with content stays.
func (db opening) takeEmpty(name, path string) error {
	if err := db.files.Op("create", path); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		err = f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	release, err := db.files.WaitLock(path, db.opts.LockTimeout, false)
	if err != nil {
		return err
	}
	defer release()
	is, err := os.Stat(path)
	if err != nil || is.Size() > 0 {
		return err
	}
	return db.replacing().takePlace(name, path, is)
}
