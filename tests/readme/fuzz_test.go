package readme

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestFuzzScript: a target that met Go's own deadline is run again, twice at
// most; any other failure counts at once. A script stands in for go.
func TestFuzzScript(t *testing.T) {
	const deadline = "--- FAIL: FuzzX (3.11s)\n    context deadline exceeded\nFAIL\n"
	for _, tc := range []struct {
		name, says string
		fails      int // times, before it passes
		calls      int // of the first target
		passes     bool
	}{
		{"deadline once", deadline, 1, 2, true},
		{"deadline each time", deadline, 9, 3, false},
		{"an input", deadline + "Failing input written to testdata/fuzz\n", 9, 1, false},
		{"a test's own error", "        x_test.go:12: no\n" + deadline, 9, 1, false},
		{"a build", "FAIL [build failed]\n", 9, 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			stub := "#!/bin/sh\necho call >>" + dir + "/calls\n" +
				"[ $(wc -l <" + dir + "/calls) -gt $FAILS ] && exit 0\ncat " + dir + "/says\nexit 1\n"
			for name, text := range map[string]string{"go": stub, "says": tc.says} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			cmd := exec.CommandContext(t.Context(), "../../.ci/fuzz", "1s")
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), fmt.Sprint("FAILS=", tc.fails))
			out, err := cmd.CombinedOutput()
			if (err == nil) != tc.passes {
				t.Errorf("%v: %s", err, out)
			}
			first, _, _ := strings.Cut(string(out), "\n")
			if n := strings.Count(string(out), first+"\n"); n != tc.calls {
				t.Errorf("the first target ran %d times: %s", n, out)
			}
		})
	}
}
