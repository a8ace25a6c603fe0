package live

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// TestMovedFile: the owner's file is moved away. While there is no file at the path, the
// owner answers, and says so. If another file is there, the owner shows nothing of its
// own file, and leaves the socket to the other file's owner.
func TestMovedFile(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files that are open cannot be renamed")
	}
	path := testPath(t)
	a, _ := world(t, path, 3, 1)
	first := start(t, a, defaultLimits)
	if st, err := dial(t, path).Status(t.Context()); err != nil || st.Owner.Moved != "" {
		t.Fatalf("%+v %v", st.Owner, err)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	c := dial(t, path)
	st, err := c.Status(t.Context())
	if err != nil || !strings.Contains(st.Owner.Moved, "no longer at its path") || st.Owner.Error != "" {
		t.Errorf("nothing is there: %+v %v", st.Owner, err)
	}
	if got := listed(t, c); len(got) != 3 {
		t.Errorf("nothing is there: %d objects", len(got))
	}

	b, _ := world(t, path, 5, 1)
	if err := c.Snapshot(t.Context(), io.Discard); err == nil ||
		!strings.Contains(err.Error(), "no longer at its path") {
		t.Errorf("another is there: %v", err)
	}
	if _, err := get(t, c, secretsPath, apifile.Options{Secrets: true}, false); !errors.Is(err, ErrNoOwner) {
		t.Errorf("another is there: %v", err)
	}
	second := start(t, b, defaultLimits)
	c = dial(t, path)
	if st, err := c.Status(t.Context()); err != nil || st.Owner.Moved != "" {
		t.Errorf("of B: %+v %v", st.Owner, err)
	}
	if got := listed(t, c); len(got) != 5 {
		t.Errorf("of B: %d objects", len(got))
	}
	closeServer(t, first)
	if got := listed(t, c); len(got) != 5 {
		t.Errorf("of B, once A's has ended: %d objects", len(got))
	}
	closeServer(t, second)
	if left, err := filepath.Glob(path + ".sock"); len(left) > 0 || err != nil {
		t.Errorf("left: %q %v", left, err)
	}
	if err := errors.Join(os.Rename(path, path+".of-b"), os.Rename(path+".away", path), a.Err()); err != nil {
		t.Error(err)
	}
}
