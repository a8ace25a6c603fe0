//go:build !linux && !darwin

package boltstore

import "errors"

// exchange gives each of two files the other's name, in one step.
func exchange(string, string) error { return errors.ErrUnsupported }
