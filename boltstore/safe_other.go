//go:build !unix

package boltstore

import "io/fs"

const (
	noFollow   = 0
	keepsModes = false
)

// unsafeFor: who can write a file is not in its mode here.
func unsafeFor(fs.FileInfo, bool) string { return "" }
