package osfile

import "golang.org/x/sys/unix"

// Exchange gives each of two files the other's name, in one step.
func Exchange(a, b string) error { return unix.RenamexNp(a, b, unix.RENAME_SWAP) }
