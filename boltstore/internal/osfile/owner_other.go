//go:build !unix

package osfile

import "io/fs"

// sameOwner: files have no owner that could differ.
func sameOwner(string, fs.FileInfo) error { return nil }
