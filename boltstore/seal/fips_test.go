package seal

import (
	"crypto/fips140"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFIPSOnly: where only what FIPS 140 allows may be used, files cannot be encrypted.
// Generate and Rotate write nothing, and each error names the mode, not what is no help.
func TestFIPSOnly(t *testing.T) {
	if !fips140.Enforced() {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), "GODEBUG=fips140=only", "GORACE=atexit_sleep_ms=0",
			"KUBEWAKE_TEST_KEYSET="+generated(t))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	old, path := os.Getenv("KUBEWAKE_TEST_KEYSET"), filepath.Join(t.TempDir(), "new.key")
	_, read := File(old).Read()
	for what, err := range map[string]error{"Generate": Generate(path), "Read": read, "Rotate": Rotate(old)} {
		if err == nil || !strings.Contains(err.Error(), "GODEBUG=fips140=only") ||
			strings.Contains(err.Error(), "keys generate") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("there is a new keyset")
	}
	if n := len(keysOf(t, old)); n != 1 {
		t.Errorf("the old one has %d keys", n)
	}
}

func generated(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "old.key")
	if err := Generate(path); err != nil {
		t.Fatal(err)
	}
	return path
}
