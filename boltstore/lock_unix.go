//go:build unix

package boltstore

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes bbolt's lock on a file that bbolt cannot open, so that no
// other process deals with it at the same time. ErrLocked if one does.
func lockFile(path string) (release func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrLocked
	}
	if err == nil && !isStill(f, path) {
		err = ErrLocked // and replaced, a moment ago
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
