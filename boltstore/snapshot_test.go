package boltstore

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestSnapshotOfReadOnly: a snapshot of a file that is open for reading only is the
// file itself, and writes nothing to its folder.
func TestSnapshotOfReadOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	db, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db, err = Open(path, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	db.files.Before = func(op, name string) error { return errors.New(op + " " + name + ": no room") }
	snap, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(snap)
	if err != nil || int64(len(b)) != snap.size {
		t.Fatalf("%d bytes of %d: %v", len(b), snap.size, err)
	}
	if err := snap.Close(); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(copied, b, 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Open(copied, Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	r, err := c.Check()
	if err := errors.Join(err, c.Close()); err != nil || !r.Sound() {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
