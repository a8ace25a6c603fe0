package osfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHolder: the holder is found by device and inode. Processes that only wait, or
// that cannot be seen from here, are not named.
func TestHolder(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  WRITE 11 08:01:77 0 EOF
2: FLOCK  ADVISORY  WRITE 12 08:01:777 0 EOF
3: FLOCK  ADVISORY  WRITE 13 08:01:77 0 EOF
3: -> FLOCK  ADVISORY  WRITE 14 08:01:77 0 EOF
4: FLOCK  ADVISORY  READ  15 08:01:77 0 EOF
5: FLOCK  ADVISORY  READ  0 08:01:77 0 EOF
short
`
	for file, want := range map[string]string{"08:01:77": " (pid 13, 15)", "08:01:777": " (pid 12)", "08:02:77": ""} {
		if got := pids(strings.NewReader(locks), file); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	release, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if got, want := Holder(path), fmt.Sprintf(" (pid %d)", os.Getpid()); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestUntrusted: /proc is not among the untrusted file systems; the name is that of the
// file system.
func TestUntrusted(t *testing.T) {
	if got := Untrusted("/proc"); got != "" {
		t.Error(got)
	}
	if got := Untrusted("/does/not/exist"); got != "" {
		t.Error(got)
	}
}
