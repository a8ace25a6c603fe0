//go:build !unix

package osfile

import (
	"errors"
	"os"
	"time"
)

// Lock does nothing: this system itself locks an open file.
func Lock(string) (release func(), err error) { return func() {}, nil }

// WaitLock does nothing, like Lock.
func (Files) WaitLock(string, time.Duration, bool) (release func(), err error) { return func() {}, nil }

const CanUnlock = false

// Unlock fails: it is not possible on this system.
func Unlock(*os.File) error { return errors.ErrUnsupported }
