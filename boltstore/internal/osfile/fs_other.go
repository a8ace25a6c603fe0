//go:build !linux && !darwin

package osfile

// Untrusted names the file system of a folder if its locks or syncs cannot be relied on.
// This system does not say.
func Untrusted(string) string { return "" }

// FastCommits says whether the file system of a folder may lose synced writes.
func FastCommits(string) bool { return false }
