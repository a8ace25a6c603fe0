//go:build !unix

package serve

import "io/fs"

// ownedBySelf is false: the system does not say it simply.
func ownedBySelf(fs.FileInfo) bool { return false }
