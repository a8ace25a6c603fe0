package boltstore

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestLongName: the error of a file name that leaves no room for the names of files
// beside it says what to do.
func TestLongName(t *testing.T) {
	_, err := Open(filepath.Join(t.TempDir(), strings.Repeat("x", 240)), Options{})
	if !errors.Is(err, syscall.ENAMETOOLONG) || !strings.Contains(err.Error(), "at most 200 bytes") {
		t.Error(err)
	}
	closeTest(t, openTest(t, filepath.Join(t.TempDir(), strings.Repeat("x", 200)), Options{}))
}
