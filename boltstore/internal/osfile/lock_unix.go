//go:build unix

package osfile

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// Lock takes the lock that bbolt takes, until release is called. If another process
// has it the error is [faults.ErrLocked].
func Lock(path string) (release func(), err error) { return flock(path, unix.LOCK_EX) }

// WaitLock is Lock that waits up to timeout. Readers share the lock. The system may take
// longer to answer, see Files.Slow.
func (f Files) WaitLock(path string, timeout time.Duration, reader bool) (release func(), err error) {
	how := unix.LOCK_EX
	if reader {
		how = unix.LOCK_SH
	}
	for end := time.Now().Add(timeout); ; time.Sleep(lockPoll) {
		err = f.Timed("lock", path, func() error {
			if err := f.Op("lock", path); err != nil {
				return err
			}
			release, err = flock(path, how)
			return err
		})
		if !errors.Is(err, faults.ErrLocked) || time.Now().After(end) {
			return release, err
		}
	}
}

// lockPoll is how often WaitLock tries. The system has no wait with a deadline.
const lockPoll = 20 * time.Millisecond

// CanUnlock says whether the lock of an open file can be released.
const CanUnlock = true

// Unlock releases the lock of a file that stays open.
func Unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

func flock(path string, how int) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // a FIFO would wait for its other end
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = faults.ErrLocked
	}
	if err == nil && !IsAt(f, path) {
		err = faults.ErrLocked // another process has just replaced the file
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
