package boltstore

import "golang.org/x/sys/unix"

// exchange gives each of two files the other's name, in one step.
func exchange(a, b string) error { return unix.RenamexNp(a, b, unix.RENAME_SWAP) }
