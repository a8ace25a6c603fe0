//go:build unix

package seal

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestRotateNoFile: a path that is not a file is refused at once. Opening a FIFO would
// wait for a writer.
func TestRotateNoFile(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skip(err) // some file systems have no FIFOs
	}
	for _, path := range []string{fifo, dir} {
		done := make(chan error, 1)
		go func() { done <- Rotate(path) }()
		select {
		case err := <-done:
			if !errors.Is(err, ErrKeyset) {
				t.Errorf("%s: %v", path, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s: Rotate hangs", path)
		}
	}
}

// TestRotateRemovesLeftovers: a rotation that was killed leaves no copy of the keys for
// good. Files of other names stay.
func TestRotateRemovesLeftovers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "k*.key")
	if err := Generate(path); err != nil {
		t.Fatal(err)
	}
	leftover, stays := filepath.Join(dir, ".k*.key.new-123456"),
		[]string{".k*.key.new-mine", ".k*.key.new-", ".k2.key.new-123456", "k*.key.new-1", "123456"}
	for _, name := range append([]string{filepath.Base(leftover)}, stays...) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("keys"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Rotate(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(leftover); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the leftover stays: %v", err)
	}
	for _, name := range stays {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}
