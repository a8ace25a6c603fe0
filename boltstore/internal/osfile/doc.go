// Package osfile has the operating system's part: locks, renames, owners and modes,
// folder syncs, file systems with unreliable locks, and boots of the machine. It knows
// nothing about a file's content.
package osfile
