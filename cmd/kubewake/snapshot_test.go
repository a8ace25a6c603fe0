package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// copying is a file that a test copies.
type copying struct{ meanwhile func() }

func (c copying) Snapshot(_ context.Context, w io.Writer) error {
	if c.meanwhile != nil {
		c.meanwhile()
	}
	_, err := w.Write([]byte("copy"))
	return err
}

func filesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// TestKilledSnapshot: the next snapshot in a folder removes the remains of a killed one.
// It leaves a snapshot alone that is being made.
func TestKilledSnapshot(t *testing.T) {
	dir := t.TempDir()
	take := func(name string, meanwhile func()) {
		t.Helper()
		if _, err := snapshot(t.Context(), copying{meanwhile: meanwhile}, filepath.Join(dir, name), false); err != nil {
			t.Fatal(name, err)
		}
	}
	var left string
	take("first.db", func() {
		left = filesIn(t, dir)[0]
		take("second.db", nil) // while the first is being made
	})
	if got := filesIn(t, dir); len(got) != 2 {
		t.Fatalf("the folder has %q", got)
	}
	if err := os.WriteFile(filepath.Join(dir, left), []byte("half a"), 0o600); err != nil { // as a kill leaves it
		t.Fatal(err)
	}
	take("third.db", nil)
	if got := filesIn(t, dir); len(got) != 3 || got[0] != "first.db" {
		t.Errorf("the folder has %q", got)
	}
}

// TestKilledCheck: the same for the folders with copies that commands read or verify.
func TestKilledCheck(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	const prefix = "kubewake-copy-"
	dir, release, err := tempDir(prefix)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "snapshot.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, second, err := tempDir(prefix)
	if err != nil {
		t.Fatal(err)
	}
	second()
	if got := filesIn(t, os.TempDir()); len(got) != 2 {
		t.Fatalf("beside one in use: %q", got)
	}
	release() // the process was killed
	_, third, err := tempDir(prefix)
	if err != nil {
		t.Fatal(err)
	}
	defer third()
	if got := filesIn(t, os.TempDir()); len(got) != 1 {
		t.Errorf("afterwards: %q", got)
	}
}
