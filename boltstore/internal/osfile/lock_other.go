//go:build !unix

package osfile

import (
	"errors"
	"io/fs"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// Lock does nothing: this system itself locks an open file.
func Lock(string) (release func(), err error) { return func() {}, nil }

// WaitLock does nothing, like Lock.
func (Files) WaitLock(string, time.Duration, bool) (release func(), err error) { return func() {}, nil }

const CanUnlock = false

// Unlock fails: it is not possible on this system.
func Unlock(*os.File) error { return errors.ErrUnsupported }

// IsFree says whether a writer could open the file now, or there is no file. It returns
// false if it cannot find out. Only bbolt has a lock on this system. So bbolt opens the
// file, without permission to write.
func IsFree(path string) bool {
	opened := false
	o := &bolt.Options{Timeout: time.Nanosecond, OpenFile: func(name string, _ int, _ os.FileMode) (*os.File, error) {
		f, err := os.Open(name)
		opened = err == nil
		return f, err
	}}
	err := faults.Contain(func() error {
		b, err := bolt.Open(path, 0, o)
		if err == nil {
			err = b.Close()
		}
		return err
	})
	return opened && !errors.Is(err, berrors.ErrTimeout) || errors.Is(err, fs.ErrNotExist)
}
