//go:build !unix

package osfile

import "io/fs"

const (
	noFollow   = 0
	KeepsModes = false
)

// UnsafeFor finds nothing: on this system the mode does not say which users can write a
// file.
func UnsafeFor(fs.FileInfo, bool) string { return "" }
