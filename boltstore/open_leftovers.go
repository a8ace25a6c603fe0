package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// Files that are being made have names by which the next Open knows them. Such a name
// contains two inodes: of the file to be replaced, and of the new file. After a crash
// the name may lead to a third file, which came to the path while names were exchanged.
// That file is not a leftover.

// tempPrefix begins the temporary names of files for path.
func tempPrefix(path string) string { return "." + filepath.Base(path) + ".new-" }

// tempFile makes an empty file beside the one at path, with mode 0600.
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

// isNewcomer says whether the file at a temporary name is another program's, which came
// to path during an exchange of names. It is neither of the two files that the name
// says, and the new one of these is at path. In a copy of the folder no file is.
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

// removeLeftovers removes files that a crash left half made, unless another process is
// still making them. The file itself is open and locked.
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
			release, err = func() {}, nil // a second name of the file itself
		}
		if err != nil {
			continue
		}
		if isNewcomer(name, path) {
			kept := db.asideName()
			err = os.Rename(name, kept)
			release()
			if err != nil {
				db.log().Error(err, "A program died while it replaced the file, and another file had come to the path; that file could not be moved", "file", db.path, "is", name)
				continue
			}
			db.log().Info("Warning: a program died while it replaced the file, and another file had come to the path; that file is kept", "file", db.path, "kept", kept)
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
