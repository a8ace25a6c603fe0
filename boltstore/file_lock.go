package boltstore

import (
	"errors"
	"fmt"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// One process at a time writes a file: bbolt holds the file's lock while the file is open.
// Open takes the same lock before that, to look at the pages (lookAt).

// Lock takes the lock of a file, as a program that writes the file does, until release is
// called. It is for tools that replace files. The error is ErrLocked if the file is in
// use. On systems where open files cannot be replaced, Lock does nothing.
func Lock(path string) (release func(), err error) {
	if release, err = osfile.Lock(path); errors.Is(err, ErrLocked) {
		err = fmt.Errorf("boltstore: %s: %w%s", path, err, osfile.Holder(path))
	}
	return release, err
}

// sayWaits says what the program waits for if the file system does not answer.
func (o Options) sayWaits(operation, path string) {
	o.Logger.Info("Waiting for the file system, which has not answered for a second; is its server or disk there?",
		"operation", operation, "file", path)
}
