package osfile

import "golang.org/x/sys/unix"

// BootID names this boot of the machine.
func BootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil || id == "" {
		return UnknownBoot
	}
	return id
}
