//go:build linux

package boltstore

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestNoFile: a path with something other than a regular file is refused without waiting,
// and stays as it is. The error says so and what to do, also where all users may write, as
// in /dev/null.
func TestNoFile(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"fifo":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"folder": func(path string) error { return os.Mkdir(path, 0o700) },
		// /dev/null is that
		"device": func(path string) error { return syscall.Mknod(path, syscall.S_IFCHR|0o600, 1<<8|3) },
		"socket": func(path string) error { return syscall.Mknod(path, syscall.S_IFSOCK|0o600, 0) },
	} {
		for how, open := range map[string]func(path string) error{
			"open":      func(path string) error { return openAndClose(path, Options{}) },
			"read-only": func(path string) error { return openAndClose(path, Options{ReadOnly: true}) },
			"compact":   func(path string) error { _, err := Compact(t.Context(), path, Options{}, nil); return err },
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				path := testPath(t)
				if err := put(path); errors.Is(err, fs.ErrPermission) {
					t.Skip("this user or file system cannot make one: ", err) // a device takes root
				} else if err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(path, 0o777); err != nil {
					t.Fatal(err)
				}
				was, err := os.Lstat(path)
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- open(path) }()
				select {
				case err := <-done:
					if !errors.Is(err, ErrForeign) {
						t.Fatal(err)
					}
					want := path + ": not a kubewake file: it is not a regular file; give the path of a file"
					if !strings.Contains(err.Error(), want) {
						t.Errorf("%v, not %s", err, want)
					}
				case <-time.After(time.Minute):
					t.Error("it waits")
				}
				if is, err := os.Lstat(path); err != nil || !os.SameFile(was, is) {
					t.Errorf("what was there is gone: %v", err)
				}
				noLeftovers(t, path)
			})
		}
	}
}

func openAndClose(path string, o Options) error {
	db, err := Open(path, o)
	if err == nil {
		err = db.Close()
	}
	return err
}
