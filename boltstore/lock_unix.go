//go:build unix

package boltstore

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFree says whether no other process holds bbolt's lock on the file.
func lockFree(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
