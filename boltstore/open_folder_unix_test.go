//go:build unix

package boltstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestFolderIsMade: Open makes the file's folder, for this user alone, below one that all
// users can write, as the root of a pod's volume. It makes no other folder.
func TestFolderIsMade(t *testing.T) {
	volume := t.TempDir()
	if err := os.Chmod(volume, 0o777|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(volume, "f.db"), Options{}); !errors.Is(err, ErrUnsafe) ||
		!strings.Contains(err.Error(), "a folder below the volume's") {
		t.Errorf("in the volume itself: %v", err)
	}
	path := filepath.Join(volume, "cache", "f.db")
	if _, err := Open(path, Options{ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("for reading: %v", err)
	}
	for range 2 {
		closeTest(t, openTest(t, path, Options{}))
		st, err := os.Stat(filepath.Dir(path))
		if err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("the folder: %v, %v", st.Mode(), err)
		}
	}
	if _, err := Open(filepath.Join(volume, "a", "b", "f.db"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("two folders: %v", err)
	}
	var names []string
	all, err := os.ReadDir(volume)
	for _, e := range all {
		names = append(names, e.Name())
	}
	if err != nil || !slices.Equal(names, []string{"cache"}) {
		t.Errorf("in the volume: %q, %v", names, err)
	}
}

// TestFolderIsMadeTwice: another process makes the folder first. It is used if only this
// user can write it.
func TestFolderIsMadeTwice(t *testing.T) {
	for mode, want := range map[os.FileMode]error{0o700: nil, 0o770: ErrUnsafe} {
		path := filepath.Join(t.TempDir(), "cache", "f.db")
		made := false
		db, err := Open(path, Options{op: func(op, at string) error {
			if op != "mkdir" {
				return nil
			}
			made = true
			return errors.Join(os.Mkdir(at, mode), os.Chmod(at, mode))
		}})
		if !errors.Is(err, want) || (err == nil) != (want == nil) || !made {
			t.Errorf("%v: %v", mode, err)
		}
		if err == nil {
			closeTest(t, db)
		}
	}
}

// TestVolumeOfAPod: the kubelet changes a volume with an fsGroup at each start of a pod,
// unless its root has that group already, and so opens the file to the group. Such a file
// is refused, and the error says how to prevent this.
func TestVolumeOfAPod(t *testing.T) {
	volume := t.TempDir()
	path := filepath.Join(volume, "cache", "f.db")
	start := func(always bool) error {
		opened := 0o660 | os.ModeSetgid | 0o110
		if st, err := os.Stat(volume); err != nil || !always && st.Mode()&opened == opened {
			return err
		}
		err := filepath.WalkDir(volume, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			st, err := d.Info()
			if err != nil {
				return err
			}
			mode := st.Mode() | 0o660
			if d.IsDir() {
				mode = st.Mode() | opened
			}
			return os.Chmod(path, mode)
		})
		return err
	}
	for range 3 {
		if err := start(false); err != nil {
			t.Fatal(err)
		}
		closeTest(t, openTest(t, path, Options{}))
	}
	if err := start(true); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{}); !errors.Is(err, ErrUnsafe) || !strings.Contains(err.Error(), "OnRootMismatch") {
		t.Errorf("after fsGroupChangePolicy Always: %v", err)
	}
}
