package beside

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// AsideInfix is between the name of the file and the time at which it was set aside.
const AsideInfix = ".corrupt-"

// ErrReplaced means that another file has come to the path.
var ErrReplaced = errors.New("it was replaced while it was opened; try again")

// Files are the files beside the one at Path.
type Files struct {
	*osfile.Files
	Path string
	Log  klog.Logger
	Now  func() time.Time
	// Keep and KeepBytes bound the files that were set aside, as boltstore's keepCorrupt.
	Keep      int
	KeepBytes int64
}

// AsideName is a name for a file to set aside now. No file has it.
func (f *Files) AsideName() string {
	stem := f.Path + AsideInfix + f.Now().UTC().Format("20060102T150405.000Z")
	name := stem
	for n := 2; ; n++ {
		if _, err := os.Lstat(name); errors.Is(err, os.ErrNotExist) {
			return name
		}
		name = fmt.Sprintf("%s-%d", stem, n)
	}
}

// SetAside gives the file at path, which must be the file is, a second name. Another file
// can then take the first name. If the file system has no links, the second name is that
// of a copy. So there is a file at the path at any moment.
func (f *Files) SetAside(path string, is os.FileInfo) (string, error) {
	for _, name := range f.Aside() {
		if sameFile(name, path) { // an earlier program gave it and died
			return name, nil
		}
	}
	if name := f.AsideName(); f.Link(path, name) == nil {
		return name, nil
	}
	src, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer src.Close()
	if st, err := src.Stat(); err != nil || !os.SameFile(st, is) {
		return "", errors.Join(ErrReplaced, err)
	}
	return f.copy(src)
}

// copy makes a copy to set aside. It has holes where the disk cannot read the file.
func (f *Files) copy(from *os.File) (name string, err error) {
	name = f.AsideName()
	st, err := from.Stat()
	if err != nil {
		return "", err
	}
	if err = f.copyTo(from, st.Size(), name); err != nil {
		if rerr := f.Remove(name); !errors.Is(rerr, os.ErrNotExist) { // it was not even made
			err = faults.Join(err, rerr)
		}
		return "", err
	}
	f.TryLike(name, st)
	return name, nil
}

func (f *Files) copyTo(src io.ReaderAt, size int64, to string) error {
	if err := f.Op("create", to); err != nil {
		return err
	}
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = copyParts(dst, src, size)
	if err == nil {
		err = dst.Truncate(size) // a hole may be at its end
	}
	if err == nil {
		err = f.Op("sync", to)
	}
	if err == nil {
		err = dst.Sync()
	}
	return faults.Join(err, dst.Close())
}

// copyParts copies what can be read of size bytes.
func copyParts(dst io.WriterAt, src io.ReaderAt, size int64) error {
	const large, small = 1 << 20, 4 << 10 // small is a sector of most disks
	b := make([]byte, min(large, size))
	for at, step := int64(0), int64(large); at < size; {
		n, _ := src.ReadAt(b[:min(step, size-at)], at)
		whole := int64(n) == min(step, size-at)
		if !whole && step == large {
			step = small
			continue
		}
		if whole {
			if _, err := dst.WriteAt(b[:n], at); err != nil {
				return err
			}
		}
		if at += step; at%large == 0 {
			step = large
		}
	}
	return nil
}

// TryLike gives the file called name the mode and owner of from. It only logs a failure,
// since a damaged file must be replaced in any case.
func (f *Files) TryLike(name string, from os.FileInfo) {
	if err := osfile.Like(name, from); err != nil {
		f.Log.Error(err, "The mode and owner of a damaged file could not be given to its replacement or copy", "file",
			name)
	}
}

// Aside returns the files that were set aside and are still there, the newest first.
func (f *Files) Aside() []string {
	dir := filepath.Dir(f.Path)
	all, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range all {
		if strings.HasPrefix(e.Name(), filepath.Base(f.Path)+AsideInfix) && e.Type().IsRegular() {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(b, a) }) // the time is in the name
	return names
}

// Trim removes the oldest files that were set aside until Keep and KeepBytes hold. newest
// always stays: if the clock has been set back, the names of earlier files may have later
// times.
func (f *Files) Trim(newest string) {
	var size int64
	others := slices.DeleteFunc(f.Aside(), func(name string) bool { return name == newest })
	for i, name := range append([]string{newest}, others...) {
		st, err := os.Lstat(name)
		if err != nil {
			continue
		}
		size += st.Size()
		if i == 0 || i < f.Keep && size <= f.KeepBytes {
			continue
		}
		if err := f.Remove(name); err != nil {
			f.Log.Error(err, "An old file that was set aside could not be removed", "file", name)
		}
	}
}
