//go:build !linux && !darwin

package osfile

// BootID names this boot of the machine.
func BootID() string { return UnknownBoot }
