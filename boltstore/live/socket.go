package live

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// longest is the length of the longest path that fits in a socket's address on all
// systems, with a zero byte after it. There are 104 bytes on the BSDs and macOS, 108 on
// Linux.
const longest = 103

// SocketPath is the path of a file's socket: <db>.sock beside it, absolute and without symlinks, so
// that all paths of the file lead to the same socket.
func SocketPath(db string) (string, error) {
	abs, err := filepath.Abs(db)
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	} else if dir, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil { // there is no file yet
		abs = filepath.Join(dir, filepath.Base(abs))
	}
	return abs + ".sock", nil
}

// Listen makes a unix socket with mode 0600. It accepts only this user and root, as far
// as the system names peers. A socket that a process of this user has left at the path is
// replaced; anything else is not touched. Close removes the socket.
func Listen(path string) (net.Listener, error) {
	// Another program that finds the same leftover would remove this socket for it.
	if release, err := (osfile.Files{}).WaitLock(filepath.Dir(path), 2*patience, false); err == nil {
		defer release()
	} // otherwise the file system has no locks, or somebody else locks the folder
	return listenAt(path, false)
}

// listenAt is Listen. ours says that the path is this program's, since it has the path's file open
// for writing: a process that listens there has died, or its file was moved away.
func listenAt(path string, ours bool) (*socket, error) {
	switch {
	case runtime.GOOS == "windows":
		return nil, fmt.Errorf("a socket that only this user can use: %w on Windows", errors.ErrUnsupported)
	case len(path) > longest:
		return nil, fmt.Errorf("%s is too long for a socket's path, which has at most %d bytes", path, longest)
	}
	if err := removeStale(path, ours); err != nil {
		return nil, err
	}
	var with net.ListenConfig
	with.Control = func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) { err = setMode(fd) })
		return errors.Join(cerr, err)
	}
	listener, err := with.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	l := listener.(*net.UnixListener)
	l.SetUnlinkOnClose(false) // another process's socket may be there by then
	s := &socket{UnixListener: l, path: path}
	// A peer that connects before the mode is set is turned away by its user id.
	err = setModeAt(path)
	if err == nil {
		s.made, err = os.Lstat(path)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// removeStale removes a socket of this user on which no process listens, or any of this user if it
// is ours, and nothing else.
func removeStale(path string, ours bool) error {
	st, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there and not a socket; it is not touched", path)
	}
	if uid, ok := ownerOf(st); !ok || uid != os.Geteuid() {
		return fmt.Errorf("%s is there and another user's; it is not touched", path)
	}
	if !ours {
		c, err := net.DialTimeout("unix", path, time.Second)
		if err == nil {
			return errors.Join(fmt.Errorf("%s is there and a process listens on it; it is not touched", path),
				c.Close())
		}
		if !refused(err) {
			return fmt.Errorf("%s is there and not known to be left over: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// socket accepts only the same user and root.
type socket struct {
	*net.UnixListener
	path string
	made fs.FileInfo
}

// Accept implements net.Listener.
func (s *socket) Accept() (net.Conn, error) {
	for {
		c, err := s.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if uid, err := peer(c); errors.Is(err, errors.ErrUnsupported) || err == nil &&
			(uid == 0 || uid == os.Geteuid()) {
			return c, nil
		}
		_ = c.Close() // another user
	}
}

// Close removes the socket if it is still the one that listen made.
func (s *socket) Close() error {
	err := s.UnixListener.Close()
	if st, lerr := os.Lstat(s.path); lerr == nil && (s.made == nil || os.SameFile(st, s.made)) {
		err = errors.Join(err, os.Remove(s.path))
	}
	return err
}

// peer returns the user at the other end.
func peer(c *net.UnixConn) (uid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := raw.Control(func(fd uintptr) { uid, err = peerOf(int(fd)) })
	return uid, errors.Join(cerr, err)
}
