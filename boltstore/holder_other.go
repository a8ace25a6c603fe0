//go:build !linux

package boltstore

// holder: the system does not say whose an flock is.
func holder(string) string { return "" }
