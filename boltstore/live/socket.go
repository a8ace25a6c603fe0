package live

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// SocketPath is the path of a file's socket: <db>.sock beside it. If that is too long
// for a socket's address, it is a name in a folder of the file's owner below
// os.TempDir. The path is absolute and without symlinks, so that all paths of the file
// lead to the same socket.
func SocketPath(db string) (string, error) {
	path, _, err := socketPath(db)
	return path, err
}

// socketPath is SocketPath. alias says that the socket is not beside the file.
func socketPath(db string) (path string, alias bool, err error) {
	abs, err := filepath.Abs(db)
	if err != nil {
		return "", false, err
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		abs = real
	} else if dir, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil { // there is no file yet
		abs = filepath.Join(dir, filepath.Base(abs))
	}
	if path = abs + ".sock"; len(path) <= longest {
		return path, false, nil
	}
	uid := os.Geteuid()
	if st, err := os.Stat(db); err == nil {
		if o, ok := ownerOf(st); ok {
			uid = o
		}
	}
	sum := sha256.Sum256([]byte(abs))
	path = filepath.Join(os.TempDir(), fmt.Sprintf("kubewake-%d", uid), hex.EncodeToString(sum[:12])+".sock")
	if len(path) > longest {
		return "", false, fmt.Errorf("the path of %s and that of the temporary folder are too long for a socket; "+
			"set TMPDIR to a shorter one", db)
	}
	return path, true, nil
}

// makeDir makes the folder of an alias, or verifies that only this user can use it.
func makeDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	st, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if uid, ok := ownerOf(st); !ok || uid != os.Geteuid() || !st.IsDir() || st.Mode().Perm() != 0o700 {
		return fmt.Errorf("%s is not a folder that only this user can use (mode 0700); "+
			"remove it or set TMPDIR to another one", dir)
	}
	return nil
}

// listen makes the socket of a file that the caller has open for writing. So any other
// socket of this user at the path belongs to a process that has died.
func listen(db string) (*socket, error) {
	if runtime.GOOS == "windows" {
		return nil, fmt.Errorf("a socket that only this user can use: %w on Windows", errors.ErrUnsupported)
	}
	path, alias, err := socketPath(db)
	if err != nil {
		return nil, err
	}
	if alias {
		if err := makeDir(filepath.Dir(path)); err != nil {
			return nil, err
		}
	}
	// Another program that finds the same leftover does not have the file open, so it does not
	// remove this socket. No lock is needed, and anybody may hold the folder's.
	return listenAt(path)
}

// Listen makes a unix socket with mode 0600. It accepts only this user and root, as far
// as the system names peers. A socket that a process of this user has left at the path is
// replaced; anything else is not touched. Close removes the socket.
func Listen(path string) (net.Listener, error) {
	if runtime.GOOS == "windows" {
		return nil, fmt.Errorf("a socket that only this user can use: %w on Windows", errors.ErrUnsupported)
	}
	if len(path) > longest {
		return nil, fmt.Errorf("%s is too long for a socket's path", path)
	}
	// Another program that finds the same leftover would remove this socket for it.
	if release, err := (osfile.Files{}).WaitLock(filepath.Dir(path), 2*patience, false); err == nil {
		defer release()
	} // otherwise the file system has no locks, or somebody else locks the folder
	return listenAt(path)
}

func listenAt(path string) (*socket, error) {
	if err := removeStale(path); err != nil {
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
	if err == nil && s.made.Mode().Type() != fs.ModeSocket {
		err = fmt.Errorf("%s was replaced as soon as it was made; choose a folder that only this user can write", path)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// removeStale removes a socket of this user on which no process listens, and nothing
// else.
func removeStale(path string) error {
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
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil && ownerMoved(path) { // it belongs to a file that was at the path before
		err = c.Close()
		if rerr := os.Remove(path); !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
		return err
	}
	if err == nil {
		return errors.Join(fmt.Errorf("%s is there and a process listens on it; it is not touched", path), c.Close())
	}
	if !refused(err) {
		return fmt.Errorf("%s is there and not known to be left over: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ownerMoved asks the listening process whether its file is now at another path.
func ownerMoved(path string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := newClient(path, func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	})
	defer c.http.CloseIdleConnections()
	st, err := c.Status(ctx)
	return err == nil && st.Owner != nil && st.Owner.Moved != ""
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
		if uid, _, err := peer(c); errors.Is(err, errors.ErrUnsupported) || err == nil && (uid == 0 || uid == os.Geteuid()) {
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

func peer(c *net.UnixConn) (uid, pid int, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	cerr := raw.Control(func(fd uintptr) { uid, pid, err = peerOf(int(fd)) })
	return uid, pid, errors.Join(cerr, err)
}
