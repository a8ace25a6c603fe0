//go:build !linux && !darwin

package boltstore

// bootID names this boot of the machine.
func bootID() string { return unknownBoot }
