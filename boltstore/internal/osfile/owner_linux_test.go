package osfile

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// as runs fn in a thread of another user, who is a member of the given groups.
func as(t *testing.T, uid, gid uintptr, groups []uint32, fn func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user") // the test needs a second user
	}
	done := make(chan syscall.Errno)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		_, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)),
			uintptr(unsafe.Pointer(unsafe.SliceData(groups))), 0)
		if errno == 0 {
			_, _, errno = unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid)
		}
		if errno == 0 {
			_, _, errno = unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid)
		}
		if errno == 0 {
			fn()
		}
		done <- errno
	}()
	if errno := <-done; errno != 0 {
		t.Fatal(errno)
	}
}

// TestLikeOfAnotherUser: a new file is never open to a group that the old one was not
// open to. A member of the old file's group gives it that group.
func TestLikeOfAnotherUser(t *testing.T) {
	const self, own, shared, other, stranger = 12345, 12345, 12346, 12347, 12348
	for name, tc := range map[string]struct {
		uid, gid int
		mode     os.FileMode
		wantGid  uint32
		wantMode os.FileMode
		fails    bool
	}{
		"this user's":                       {self, own, 0o660, own, 0o660, false},
		"of a shared group":                 {self, shared, 0o660, shared, 0o660, false},
		"of a strange group":                {self, stranger, 0o660, own, 0o600, true},
		"of a strange group without rights": {self, stranger, 0o600, own, 0o600, false},
		"another's, of a shared group":      {other, shared, 0o660, shared, 0o660, true},
		"another's, of a strange group":     {other, stranger, 0o664, own, 0o604, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "osfile-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			old, next := filepath.Join(dir, "old"), filepath.Join(dir, "new")
			for _, f := range []struct {
				name     string
				uid, gid int
				mode     os.FileMode
			}{{old, tc.uid, tc.gid, tc.mode}, {next, self, own, 0o600}} {
				if err := os.WriteFile(f.name, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Chown(f.name, f.uid, f.gid); err != nil {
					t.Fatal(err)
				}
				if err := os.Chmod(f.name, f.mode); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dir, 0o777); err != nil {
				t.Fatal(err)
			}
			st, err := os.Stat(old)
			if err != nil {
				t.Fatal(err)
			}
			as(t, self, own, []uint32{shared}, func() { err = Like(next, st) })
			if (err != nil) != tc.fails {
				t.Error(err)
			}
			is, err := os.Stat(next)
			if err != nil {
				t.Fatal(err)
			}
			if gid := is.Sys().(*syscall.Stat_t).Gid; gid != tc.wantGid || is.Mode().Perm() != tc.wantMode {
				t.Errorf("group %d, mode %v; want %d, %v", gid, is.Mode().Perm(), tc.wantGid, tc.wantMode)
			}
		})
	}
}
