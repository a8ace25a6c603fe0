//go:build !linux

package informer

func smallDisk(string) bool   { return false }
func removeDisk(string) error { return nil }
func fillDisk(string) error   { return nil }
func freeDisk(string) error   { return nil }
