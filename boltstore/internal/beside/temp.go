package beside

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// TempPrefix begins the names of files that are being made for path.
func TempPrefix(path string) string { return "." + filepath.Base(path) + ".new-" }

// Temp makes an empty file, of mode 0600, in the folder of path, for which it is
// being made. was is the file there, nil if there is none.
func (f *Files) Temp(path string, was os.FileInfo) (name string, err error) {
	if err := f.Op("create", TempPrefix(path)); err != nil {
		return "", err
	}
	for range 100 {
		if name, err = makeTemp(path, was); !errors.Is(err, errTaken) {
			return name, osfile.SayLong(err)
		}
	}
	return "", err
}

// errTaken means that another process took the new file for a leftover, before it had
// its name, and removed it.
var errTaken = errors.New("another process removed the new file")

func makeTemp(path string, was os.FileInfo) (string, error) {
	made, err := os.CreateTemp(filepath.Dir(path), TempPrefix(path)+"*")
	if err != nil {
		return "", err
	}
	st, err := made.Stat()
	if err = errors.Join(err, made.Close()); err != nil {
		return "", errors.Join(err, os.Remove(made.Name()))
	}
	random := strings.TrimPrefix(filepath.Base(made.Name()), TempPrefix(path))
	name := filepath.Join(filepath.Dir(path),
		fmt.Sprintf("%s%x-%x-%s", TempPrefix(path), osfile.Inode(was), osfile.Inode(st), random))
	err = os.Rename(made.Name(), name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", errTaken
	case err != nil:
		return "", errors.Join(err, os.Remove(made.Name()))
	}
	return name, nil
}

// isNewcomer says whether the file at a temporary name is another program's, which came
// to path during an exchange of names. Such a file is neither of the two that the name
// states, and the new one of those is at path. In a copy of the folder, no file is a
// newcomer.
func isNewcomer(name, path string) bool {
	var was, made uint64
	_, err := fmt.Sscanf(strings.TrimPrefix(filepath.Base(name), TempPrefix(path)), "%x-%x-", &was, &made)
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

// RemoveLeftovers removes unfinished files that a crash left, unless another process is
// making them. The caller has the file open and locked.
func (f *Files) RemoveLeftovers() {
	path, err := filepath.EvalSymlinks(f.Path)
	if err != nil {
		return
	}
	all, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return
	}
	for _, e := range all {
		if !strings.HasPrefix(e.Name(), TempPrefix(path)) || !e.Type().IsRegular() {
			continue
		}
		name := filepath.Join(filepath.Dir(path), e.Name())
		release, err := osfile.Lock(name)
		if err != nil && sameFile(name, path) {
			release, err = func() {}, nil // a second name of the file itself
		}
		if err == nil {
			f.removeLeftover(name, path)
			release()
		}
	}
}

func (f *Files) removeLeftover(name, path string) {
	if isNewcomer(name, path) {
		kept := f.AsideName()
		if err := os.Rename(name, kept); err != nil {
			f.Log.Error(err, "A program died while it replaced the file, and another file had come to the path; "+
				"that file could not be moved", "file", f.Path, "is", name)
			return
		}
		f.Log.Info("Warning: a program died while it replaced the file, and another file had come to the path; "+
			"that file is kept", "file", f.Path, "kept", kept)
		return
	}
	if err := f.Remove(name); err != nil {
		f.Log.Error(err, "A file left by a crash was not removed", "file", name)
		return
	}
	f.Log.Info("Removed a file left by a crash", "file", name)
}
