package boltstore

import "golang.org/x/sys/unix"

// bootID names this boot of the machine.
func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil || id == "" {
		return unknownBoot
	}
	return id
}
