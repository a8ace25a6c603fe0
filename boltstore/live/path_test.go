package live

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/kubewake/kubewake/boltstore"
)

// TestLeftovers: a dead process' socket is replaced; anything else stays.
func TestLeftovers(t *testing.T) {
	path := testPath(t)
	db, _ := world(t, path, 1, 1)
	sock := path + ".sock"
	dead := func() {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: sock, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		_ = l.Close()
	}
	dead()
	if _, err := Dial(path); err == nil {
		t.Fatal("connected to a dead socket")
	}
	s := start(t, db, defaultLimits)
	if _, err := dial(t, path).Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	closeServer(t, s)
	if _, err := os.Lstat(sock); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}

	if err := os.WriteFile(sock, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Serve(db, Options{}); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Error(err)
	}
	if b, err := os.ReadFile(sock); err != nil || string(b) != "precious" {
		t.Errorf("%q %v", b, err)
	}
	_ = os.Remove(sock)
	if err := os.Symlink(path+".elsewhere", sock); err != nil {
		t.Fatal(err)
	}
	if _, err := Serve(db, Options{}); err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Error(err)
	}
	_ = os.Remove(sock)
	if os.Geteuid() == 0 {
		dead()
		if err := os.Lchown(sock, 12345, -1); err != nil {
			t.Fatal(err)
		}
		if _, err := Serve(db, Options{}); err == nil || !strings.Contains(err.Error(), "another user's") {
			t.Error(err)
		}
	}
}

// TestSocketOfLongPath: a path too long for a socket has none, and the error says how long it may be.
func TestSocketOfLongPath(t *testing.T) {
	dir := filepath.Join(filepath.Dir(testPath(t)), strings.Repeat("d", 100))
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	db, _ := world(t, filepath.Join(dir, "test.db"), 3, 1)
	if _, err := Serve(db, Options{}); err == nil || !strings.Contains(err.Error(), "at most 103 bytes") {
		t.Error(err)
	}
}

// TestOneSocketForAllPaths: owner and client find the same socket by any path of the
// file.
func TestOneSocketForAllPaths(t *testing.T) {
	dir := filepath.Join(filepath.Dir(testPath(t)), "d")
	link := filepath.Join(filepath.Dir(testPath(t)), "link")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Symlink(dir, link)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	paths := []string{"test.db", "./test.db", filepath.Join(dir, "test.db"), filepath.Join(link, "test.db")}
	for _, owner := range paths {
		db, err := boltstore.Open(owner, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s := start(t, db, defaultLimits)
		for _, path := range paths {
			c, err := Dial(path)
			if err != nil {
				t.Errorf("owner %s, client %s: %v", owner, path, err)
				continue
			}
			if _, err := c.Status(t.Context()); err != nil {
				t.Error(err)
			}
			_ = c.Close()
		}
		closeServer(t, s)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.sock")); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
}

// TestRaceForASocket: of several programs that find the socket of a dead process, one
// listens, and can be reached.
func TestRaceForASocket(t *testing.T) {
	sock := testPath(t) + ".sock"
	for range 50 {
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: sock, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		_ = l.Close()
		var listening, serving sync.WaitGroup
		won := make(chan *http.Server, 4)
		for range cap(won) {
			listening.Go(func() {
				l, err := Listen(sock)
				if err != nil {
					return
				}
				s := &http.Server{Handler: http.NotFoundHandler()}
				serving.Go(func() { _ = s.Serve(l) }) // until it is closed
				won <- s
			})
		}
		listening.Wait()
		close(won)
		if len(won) != 1 {
			t.Errorf("%d listen", len(won))
		}
		for s := range won {
			_ = s.Close() // it has done its work
		}
		serving.Wait()
	}
}

// TestSocketReplacedAtOnce: somebody who replaces the new socket by a symlink changes the mode
// of no other file.
func TestSocketReplacedAtOnce(t *testing.T) {
	dir := filepath.Dir(testPath(t))
	sock, precious := filepath.Join(dir, "s"), filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(precious, 0o644); err != nil {
		t.Fatal(err)
	}
	for range 300 {
		link := sock + ".link"
		if err := os.Symlink(precious, link); err != nil {
			t.Fatal(err)
		}
		var replaces sync.WaitGroup
		replaces.Go(func() {
			for { // until it is there
				if _, err := os.Lstat(sock); err == nil {
					break
				}
			}
			_ = os.Rename(link, sock) // the test looks at the mode
		})
		l, err := Listen(sock)
		replaces.Wait()
		if err == nil {
			err = l.Close()
		}
		if err != nil && !strings.Contains(err.Error(), "replaced") {
			t.Fatal(err)
		}
		if st, err := os.Stat(precious); err != nil || st.Mode().Perm() != 0o644 {
			t.Fatalf("%v, %v", st.Mode(), err)
		}
		if err := os.Remove(sock); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// TestSocketMode: a socket has mode 0600 whatever the umask leaves.
func TestSocketMode(t *testing.T) {
	sock := testPath(t)
	l, err := Listen(sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if st, err := os.Lstat(sock); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
}
