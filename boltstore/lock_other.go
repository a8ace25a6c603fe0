//go:build !unix

package boltstore

import (
	"errors"
	"io/fs"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// lockFile: where files are locked by opening them, renaming a file in use
// fails by itself.
func lockFile(string) (release func(), err error) { return func() {}, nil }

func waitLock(string, time.Duration, bool) (release func(), err error) { return func() {}, nil }

const canLend = false

func unlock(*os.File) error { return errors.ErrUnsupported }

// isFree says whether nobody keeps a writer from the file, as who reads it does,
// too, or that there is none. What is not known is not free. Only bbolt has a lock
// here: what is wrong with a file it finds when it has it. It writes nothing,
// since it cannot.
func isFree(path string) bool {
	opened := false
	o := &bolt.Options{Timeout: time.Nanosecond, OpenFile: func(name string, _ int, _ os.FileMode) (*os.File, error) {
		f, err := os.Open(name)
		opened = err == nil
		return f, err
	}}
	err := contain(func() error {
		b, err := bolt.Open(path, 0, o)
		if err == nil {
			err = b.Close()
		}
		return err
	})
	return opened && !errors.Is(err, berrors.ErrTimeout) || errors.Is(err, fs.ErrNotExist)
}
