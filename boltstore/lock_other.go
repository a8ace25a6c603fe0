//go:build !unix

package boltstore

import "time"

// lockFile: where files are locked by opening them, renaming a file in use
// fails by itself.
func lockFile(string) (release func(), err error) { return func() {}, nil }

func waitLock(string, time.Duration, bool) (release func(), err error) { return func() {}, nil }
