//go:build unix

package seal

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestRotateKeepsOwner: the program that owns the keyset can read it afterwards.
func TestRotateKeepsOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root") // only root may give a file away
	}
	path := filepath.Join(t.TempDir(), "k.key")
	if err := Generate(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, 1234, 2345); err != nil {
		t.Fatal(err)
	}
	if err := Rotate(path); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if s := st.Sys().(*syscall.Stat_t); s.Uid != 1234 || s.Gid != 2345 || st.Mode().Perm() != 0o600 {
		t.Errorf("%d:%d %v", s.Uid, s.Gid, st.Mode())
	}
}
