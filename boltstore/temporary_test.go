package boltstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestOpenOrTemporary: while the file is in use another one is used, of which
// nothing is left; the end of its use is told, and the file is as it was.
func TestOpenOrTemporary(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	path := testPath(t)
	first, free, err := OpenOrTemporary(path, Options{LockTimeout: -1})
	if err != nil || free != nil || first.Path() != path {
		t.Fatal(first, free, err)
	}
	s := claimTest(t, first, Claim{})
	if err := s.Add(configMap("ns", "a", 1, nil)); err != nil {
		t.Fatal(err)
	}
	second, free, err := OpenOrTemporary(path, Options{LockTimeout: -1})
	if err != nil || free == nil || second.Path() == path {
		t.Fatal(second, free, err)
	}
	other := claimTest(t, second, Claim{})
	if err := other.Add(configMap("ns", "b", 2, nil)); err != nil {
		t.Fatal(err)
	}
	if keys := other.ListKeys(); len(keys) != 1 {
		t.Errorf("the temporary file has %q", keys)
	}
	select {
	case <-free:
		t.Fatal("free while it is in use")
	case <-time.After(3 * freePoll):
	}
	s.Release()
	closeTest(t, first)
	select {
	case <-free:
	case <-time.After(20 * time.Second):
		t.Fatal("not told that it is free")
	}
	other.Release()
	closeTest(t, second)
	if _, err := os.Stat(filepath.Dir(second.Path())); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
	third, free, err := OpenOrTemporary(path, Options{})
	if err != nil || free != nil {
		t.Fatal(free, err)
	}
	s = claimTest(t, third, Claim{})
	if keys := s.ListKeys(); len(keys) != 1 || keys[0] != "ns/a" {
		t.Errorf("the file has %q", keys)
	}
	// Closed while it still waits, it ends.
	fourth, free, err := OpenOrTemporary(path, Options{LockTimeout: -1})
	if err != nil || free == nil {
		t.Fatal(free, err)
	}
	closeTest(t, fourth)
}
