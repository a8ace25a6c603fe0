// Package osfile is what the operating system does for a file: locks, renames, owners
// and modes, folder syncs, file systems with unreliable locks, and boots of the
// machine. It knows nothing of a file's content.
package osfile
