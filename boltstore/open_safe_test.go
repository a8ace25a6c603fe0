//go:build unix

package boltstore

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// TestUnsafePath: a file that others can change is refused with the reason and not
// touched, unless the options allow it.
func TestUnsafePath(t *testing.T) {
	filled := filled(t)
	const stranger = 12345
	for name, c := range map[string]struct {
		change   func(path, dir string) error
		want     string // "" is none
		readOnly string
		root     bool
	}{
		"ours":     {func(string, string) error { return nil }, "", "", false},
		"readable": {func(path, _ string) error { return os.Chmod(path, 0o644) }, "", "", false},
		"group can write": {func(path, _ string) error {
			return os.Chmod(path, 0o660)
		}, osfile.Writable, osfile.Writable, false},
		"others can write": {func(path, _ string) error {
			return os.Chmod(path, 0o602)
		}, osfile.Writable, osfile.Writable, false},
		"folder": {func(_, dir string) error {
			return os.Chmod(dir, 0o770)
		}, "the folder", "the folder", false},
		"sticky folder":      {func(_, dir string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }, "", "", false},
		"others read folder": {func(_, dir string) error { return os.Chmod(dir, 0o755) }, "", "", false},
		"stranger's": {func(path, _ string) error {
			return os.Chown(path, stranger, -1)
		}, "belongs to another user (12345", "", true},
		"stranger's folder": {func(_, dir string) error {
			return os.Chown(dir, stranger, -1)
		}, "belongs to another user (12345", "", true},
		"stranger's and /tmp": {func(_, dir string) error {
			return errors.Join(os.Chown(dir, stranger, -1), os.Chmod(dir, 0o777|os.ModeSticky))
		}, "belongs to another user", writableButSticky, true},
		"symlink": {func(path, _ string) error {
			return errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path))
		}, "symlink", "symlink", false},
		"dangling symlink": {func(path, _ string) error {
			return errors.Join(os.Remove(path), os.Symlink(path+".real", path))
		}, "symlink", "symlink", false},
	} {
		t.Run(name, func(t *testing.T) {
			if c.root && os.Geteuid() != 0 {
				t.Skip("only root can give files away")
			}
			path := testPath(t)
			if err := errors.Join(os.WriteFile(path, filled, 0o600), c.change(path, filepath.Dir(path))); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = os.Chmod(filepath.Dir(path), 0o700) })
			for _, o := range []Options{{ReadOnly: true}, {}} {
				want := c.want
				if o.ReadOnly {
					want = c.readOnly
				}
				db, err := Open(path, o)
				if want == "" && err == nil {
					st, err := os.Stat(path)
					if err != nil || !o.ReadOnly && st.Mode().Perm() != 0o600 {
						t.Errorf("mode %v %v", st.Mode(), err)
					}
					closeTest(t, db)
					continue
				}
				if want == "" || !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), want) ||
					!strings.Contains(err.Error(), "AllowUnsafePath") {
					t.Errorf("%+v: %v", o, err)
				}
				if err == nil {
					closeTest(t, db)
				}
			}
			if left, _ := filepath.Glob(path + ".corrupt-*"); len(left) > 0 {
				t.Errorf("touched: %q", left)
			}
			if name != "dangling symlink" {
				closeTest(t, openTest(t, path, Options{AllowUnsafePath: true}))
			}
		})
	}
}

// writableButSticky: root reads a stranger's file in a sticky folder.
const writableButSticky = ""

// TestLockTimeout: a second Open fails within a second and names the process that has
// the file, or waits for LockTimeout.
func TestLockTimeout(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	var err error
	fastest := time.Hour
	for range 3 { // the machine may hold one of them up
		begin := time.Now()
		if _, err = Open(path, Options{}); !errors.Is(err, ErrLocked) {
			t.Fatal(err)
		}
		fastest = min(fastest, time.Since(begin))
	}
	if fastest > time.Second {
		t.Errorf("%v after %v", err, fastest)
	}
	if want := " (pid "; runtime.GOOS == "linux" && !strings.Contains(err.Error(), want) {
		t.Errorf("the holder is not named: %v", err)
	}
	opened := make(chan error, 1)
	go func() {
		second, err := Open(path, Options{LockTimeout: time.Minute})
		if err == nil {
			err = second.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(700 * time.Millisecond): // longer than the default
	}
	closeTest(t, db)
	select {
	case err := <-opened:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("still waits")
	}
}
