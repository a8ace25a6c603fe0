//go:build unix

package boltstore

import (
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestLockOfAFIFO: no lock waits for a writer of a FIFO.
func TestLockOfAFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Skip(err) // the file system has none
	}
	locked := make(chan error, 1)
	go func() {
		release, err := Lock(path)
		if err == nil {
			_, again := Lock(path)
			if !errors.Is(again, ErrLocked) {
				err = errors.Join(errors.New("locked twice"), again)
			}
			release()
		}
		locked <- err
	}()
	select {
	case err := <-locked:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("Lock waits")
	}
}
