// Package osfile is what the operating system does for a file: locks, renames,
// owners and modes, folder syncs, file systems that are not to be trusted, and
// boots of the machine. It knows nothing of what a file holds.
package osfile
