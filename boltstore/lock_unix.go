//go:build unix

package boltstore

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile takes bbolt's lock on a file that bbolt cannot open, so that no
// other process deals with it at the same time. ErrLocked if one does.
func lockFile(path string) (release func(), err error) { return flock(path, unix.LOCK_EX) }

// waitLock takes bbolt's lock, waiting for it, so that the file can be looked
// at while nobody writes to it. A reader shares it with other readers.
func waitLock(path string, timeout time.Duration, reader bool) (release func(), err error) {
	how := unix.LOCK_EX
	if reader {
		how = unix.LOCK_SH
	}
	for end := time.Now().Add(timeout); ; time.Sleep(lockPoll) {
		if release, err = flock(path, how); !errors.Is(err, ErrLocked) || time.Now().After(end) {
			return release, err
		}
	}
}

// lockPoll is how often a lock is tried; the system tells nobody that it is free
// in a way that can be given up.
const lockPoll = 20 * time.Millisecond

// isFree says whether nobody keeps a writer from the file, as who reads it does,
// too, or that there is none. What is not known is not free.
func isFree(path string) bool {
	// Over NFS a lock of a writer's is only given to who may write.
	release, err := flockAs(path, os.O_RDWR, unix.LOCK_EX)
	if err == nil {
		release()
	}
	return err == nil || errors.Is(err, fs.ErrNotExist)
}

// canLend says whether the lock of an open file can be let go.
const canLend = true

// unlock lets go of the lock of a file that stays open.
func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

func flock(path string, how int) (release func(), err error) {
	return flockAs(path, os.O_RDONLY, how)
}

func flockAs(path string, flag, how int) (release func(), err error) {
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
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
