//go:build !linux && !darwin

package osfile

import "errors"

// Exchange gives each of two files the other's name, in one step.
func Exchange(string, string) error { return errors.ErrUnsupported }
