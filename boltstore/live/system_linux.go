package live

import "golang.org/x/sys/unix"

func peerOf(fd int) (uid int, err error) {
	c, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return 0, err
	}
	return int(c.Uid), nil
}

// setMode gives a socket that is not bound yet the mode of its later file.
func setMode(fd uintptr) error { return unix.Fchmod(int(fd), 0o600) }

// setModeAt is for systems without setMode.
func setModeAt(string) error { return nil }
