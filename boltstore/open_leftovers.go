package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// Files that are being made have names by which the next Open knows them. Such a
// name says which file the new one is to replace, and which one it is itself, by
// their inodes. After a crash a third file may be under it: one that came to the
// path while the names were exchanged. That is nobody's leftover.

// tempPrefix begins the names of files that are to become the one at path.
func tempPrefix(path string) string { return "." + filepath.Base(path) + ".new-" }

// tempFile makes an empty file beside the one at path, 0600.
func (db *DB) tempFile(path string) (string, error) {
	if err := db.files.Op("create", tempPrefix(path)); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(filepath.Dir(path), tempPrefix(path)+"*")
	if err != nil {
		return "", err
	}
	was := db.judged
	if b := db.h.now.Load(); b != nil {
		was = b.is
	}
	st, err := f.Stat()
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	random := strings.TrimPrefix(filepath.Base(f.Name()), tempPrefix(path))
	name := filepath.Join(filepath.Dir(path), fmt.Sprintf("%s%x-%x-%s", tempPrefix(path), osfile.Inode(was), osfile.Inode(st), random))
	if err := os.Rename(f.Name(), name); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return name, nil
}

// isNewcomer says whether the file with a temporary name for path is neither the
// one that was made under it nor the one that was to be replaced, while the one
// that was made is at path. In a copy of the folder no file is any of these.
func isNewcomer(name, path string) bool {
	var was, made uint64
	_, err := fmt.Sscanf(strings.TrimPrefix(filepath.Base(name), tempPrefix(path)), "%x-%x-", &was, &made)
	if err != nil || made == 0 {
		return false
	}
	at, err := os.Stat(path)
	if err != nil || osfile.Inode(at) != made {
		return false
	}
	st, err := os.Lstat(name)
	return err == nil && osfile.Inode(st) != was && osfile.Inode(st) != made
}

func sameFile(a, b string) bool {
	is, err := os.Stat(a)
	if err != nil {
		return false
	}
	other, err := os.Stat(b)
	return err == nil && os.SameFile(is, other)
}

// removeLeftovers removes what a crash left of files that were being made,
// unless another process is at it. The file itself is open and locked.
func (db *DB) removeLeftovers() {
	path, err := filepath.EvalSymlinks(db.path)
	if err != nil {
		return
	}
	files, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	for _, f := range files {
		name := filepath.Join(filepath.Dir(path), f.Name())
		if !strings.HasPrefix(f.Name(), tempPrefix(path)) || !f.Type().IsRegular() {
			continue
		}
		release, err := osfile.Lock(name)
		if err != nil && sameFile(name, path) {
			release, err = func() {}, nil // the file itself, by the name under which it was made
		}
		if err != nil {
			continue
		}
		if isNewcomer(name, path) {
			kept := db.asideName()
			err = os.Rename(name, kept)
			release()
			if err != nil {
				db.log().Error(err, "A file that came to the path while a program replaced the one before it, and died, was not moved", "file", db.path, "is", name)
				continue
			}
			db.log().Info("Warning: a file came to the path while a program replaced the one before it, and died; it is kept", "file", db.path, "kept", kept)
			continue
		}
		err = db.files.Remove(name)
		release()
		if err != nil {
			db.log().Error(err, "A file left by a crash was not removed", "file", name)
			continue
		}
		db.log().Info("Removed a file left by a crash", "file", name)
	}
}
