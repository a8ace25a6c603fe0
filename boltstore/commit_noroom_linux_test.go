package boltstore

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestDiskFullAtOpen is TestNoRoomToOpen with a file system that fills up at different
// points.
func TestDiskFullAtOpen(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=6m"); err != nil {
		t.Skip("needs root, to mount a file system of its own: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path, filler := filepath.Join(dir, "test.db"), filepath.Join(dir, "filler")
	srv := stored(t, path, 2000, 1, Options{})
	changeHeader(t, path, ofUncleanBoot)
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		t.Fatal(err)
	}
	free := int64(fs.Bavail) * int64(fs.Bsize)
	for room := int64(0); room < 600<<10; room += 100 << 10 {
		if err := os.WriteFile(filler, make([]byte, free-room), 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := Open(path, Options{Keyset: sealtest.Default()})
		if err == nil {
			t.Fatal("opened with ", room, " bytes free, ", errors.Join(db.Close()))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		onlyFile(t, path)
	}
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	sameObjects(t, "after", srv.anys(), s.List())
	if len(db.AsidePaths()) > 0 || s.Err() != nil {
		t.Error(db.AsidePaths(), s.Err())
	}
}

// TestDiskFullAtRotation: a disk without room for a copy does not keep a file from
// being opened when a new data key is due. The next Open with room makes it.
func TestDiskFullAtRotation(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=6m"); err != nil {
		t.Skip("needs root, to mount a file system of its own: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	path, filler := filepath.Join(dir, "test.db"), filepath.Join(dir, "filler")
	keys := filepath.Join(t.TempDir(), "keyset.json")
	if err := seal.Generate(keys); err != nil {
		t.Fatal(err)
	}
	o := Options{Keyset: seal.File(keys)}
	srv := stored(t, path, 2000, 1, o)
	if err := seal.Rotate(keys); err != nil {
		t.Fatal(err)
	}
	for _, room := range []int64{0, 100 << 10, 500 << 10, -1} {
		if room >= 0 {
			var fs syscall.Statfs_t
			if err := syscall.Statfs(dir, &fs); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filler, make([]byte, int64(fs.Bavail)*int64(fs.Bsize)-room), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		db := openTest(t, path, o)
		if db.KeysDue() != (room >= 0) {
			t.Fatalf("with %d bytes free: due %v", room, db.KeysDue())
		}
		s, err := db.View(configMaps)
		if err != nil {
			t.Fatal(err)
		}
		sameObjects(t, "served", srv.anys(), s.List())
		if room >= 0 {
			if err := os.Remove(filler); err != nil {
				t.Fatal(err)
			}
		}
		closeTest(t, db)
		onlyFile(t, path)
	}
}
