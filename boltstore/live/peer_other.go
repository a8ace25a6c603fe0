//go:build !linux && !darwin

package live

import "errors"

// peerOf fails: the system does not name the peer. Only the socket's mode protects it.
func peerOf(int) (uid int, err error) { return 0, errors.ErrUnsupported }
