// Package disktest knows in which states the end of a process, or a power failure, may
// leave a folder, so that a test can go on from there.
package disktest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Disk watches a folder. [Disk.Before] is called before each operation on files, as
// boltstore's tests and tuning.File ask for. It keeps each file open, so that it can read
// a file without a name, and no inode is used twice.
type Disk struct {
	// Dir is the folder.
	Dir string
	// Durable has the names that are on the disk for certain.
	Durable map[string]*File
	// Synced says that transactions are synced.
	Synced bool

	files        []*File
	last, lastOn string // the operation that was begun before
}

// File is one that the folder has or had.
type File struct {
	f      *os.File
	info   os.FileInfo
	synced []byte // the content that is on the disk for certain, unless all of it is
	all    bool   // everything that was written is on the disk
}

// New watches dir, whose whole content is on the disk.
func New(dir string) (*Disk, error) {
	d := &Disk{Dir: dir}
	var err error
	if d.Durable, err = d.Names(); err != nil {
		return nil, err
	}
	for _, f := range d.files {
		f.all = true
	}
	return d, nil
}

// Close closes the files that are kept open.
func (d *Disk) Close() {
	for _, f := range d.files {
		f.f.Close()
	}
}

// Names are the names that the folder has now.
func (d *Disk) Names() (map[string]*File, error) {
	all, err := os.ReadDir(d.Dir)
	if err != nil {
		return nil, err
	}
	names := map[string]*File{}
	for _, e := range all {
		path := filepath.Join(d.Dir, e.Name())
		st, err := os.Stat(path)
		if os.IsNotExist(err) || err == nil && !st.Mode().IsRegular() {
			continue
		}
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(d.files, func(f *File) bool { return os.SameFile(f.info, st) })
		if i < 0 {
			f, err := os.Open(path)
			if err != nil {
				return nil, err
			}
			i = len(d.files)
			d.files = append(d.files, &File{f: f, info: st})
		}
		names[e.Name()] = d.files[i]
	}
	return names, nil
}

// Content is the content that a process reads.
func (f *File) Content() ([]byte, error) {
	st, err := f.f.Stat()
	if err != nil {
		return nil, err
	}
	b := make([]byte, st.Size())
	n, err := f.f.ReadAt(b, 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return b[:n], err
}

// Certain is the content that is on the disk whatever happens.
func (f *File) Certain() ([]byte, error) {
	if f.all {
		return f.Content()
	}
	return f.synced, nil
}

// ID tells the file from others that the folder has had.
func (d *Disk) ID(f *File) int { return slices.Index(d.files, f) }

// committing is a transaction that a "commit" has announced.
const committing = "commit, transaction"

// Before is called before an operation; the previous one has ended. It returns the names
// that the folder has.
//
// A "transaction" is one in a file in use; it is on the disk in the end if Synced is set,
// or if a "commit" of the same file announced it.
func (d *Disk) Before(op, path string) (map[string]*File, error) {
	now, err := d.Names()
	if err != nil {
		return nil, err
	}
	on := now[filepath.Base(d.lastOn)]
	switch {
	case d.last == "sync" && d.lastOn == d.Dir:
		d.Durable = now
	case on != nil && (d.last == "sync" || d.last == "commit" || d.last == committing || d.last == "transaction" &&
		d.Synced):
		on.all, on.synced = true, nil
	}
	if op == "transaction" && d.last == "commit" && d.lastOn == path {
		d.last = committing
		return now, nil
	}
	d.last, d.lastOn = op, path
	unsynced := op == "transaction" && !d.Synced || op == "commit" || op == "write"
	if f := now[filepath.Base(path)]; f != nil && f.all && unsynced {
		if f.synced, err = f.Content(); err != nil {
			return nil, err
		}
		f.all = false
	}
	return now, nil
}

// Doing is the operation under way.
func (d *Disk) Doing() string {
	return fmt.Sprint(d.last, " ", strings.TrimPrefix(d.lastOn, d.Dir))
}
