//go:build !unix

package osfile

import "io/fs"

const (
	noFollow   = 0
	KeepsModes = false
)

// UnsafeFor: who can write a file is not in its mode here.
func UnsafeFor(fs.FileInfo, bool) string { return "" }
