package buildid_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// build builds a program below testdata, from the module and its dependencies as they are.
func build(t *testing.T, prog string, args ...string) string {
	t.Helper()
	exe := filepath.Join(t.TempDir(), prog)
	args = append(append([]string{"build", "-o", exe}, args...), "./testdata/"+prog)
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, out)
	}
	return exe
}

func run(t *testing.T, exe string, args ...string) string {
	t.Helper()
	out, err := exec.Command(exe, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", exe, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestSecondBuild: functions without a version count as changed in another build, even
// if the build has no id, or one set by hand.
func TestSecondBuild(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	for name, ldflags := range map[string]string{
		"cmd/go's id": "-s -w",
		"no id":       "-s -w -buildid=",
		"redacted":    "-s -w -buildid=redacted",
	} {
		t.Run(name, func(t *testing.T) {
			one := build(t, "prog", "-ldflags", ldflags)
			two := build(t, "prog", "-ldflags", ldflags, "-tags", "two")
			flag := build(t, "prog", "-ldflags", ldflags+` -X "main.flag=a flag"`)
			file := filepath.Join(t.TempDir(), "test.db")
			for _, step := range []struct{ exe, mode, want string }{
				{one, "write", `["one, no flag"] ""`},
				{one, "read", `["one, no flag"] ""`},
				{two, "read", `["two, no flag"] "the transform has changed"`},
				{flag, "read", `["one, a flag"] "the transform has changed"`},
				{one, "read", `["one, no flag"] ""`},
			} {
				if got := run(t, step.exe, file, step.mode); got != step.want {
					t.Errorf("%s %s: %s, not %s", step.exe, step.mode, got, step.want)
				}
			}
		})
	}
}

// TestBuildIDs: a build has one name, wherever its file is, and no two builds have the
// same.
func TestBuildIDs(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	names := map[string]string{}
	for what, args := range map[string][]string{
		"with symbols": {"-ldflags=-w"}, "pie": {"-buildmode=pie"}, "no id": {"-ldflags=-buildid="},
		"redacted": {"-ldflags=-buildid=redacted"}, "-X": {`-ldflags=-X "main.flag=a flag"`},
		"no id, -X":      {`-ldflags=-buildid= -X "main.flag=a flag"`},
		"pie without id": {"-buildmode=pie", "-ldflags=-buildid="}, "stripped": {"-ldflags=-s"},
	} {
		exe := build(t, "name", args...)
		name := run(t, exe)
		if other, taken := names[name]; taken || name == "" || strings.Contains(name, "unknown") {
			t.Errorf("%s and %s: %q", what, other, name)
		}
		names[name] = what
		moved := filepath.Join(t.TempDir(), "moved")
		if err := os.Rename(exe, moved); err != nil {
			t.Fatal(err)
		}
		if again := run(t, moved); again != name {
			t.Errorf("%s: %q, then %q", what, name, again)
		}
	}
}

// TestReplacedExecutable: a program whose file was replaced or removed while it ran
// does not take the new build's name.
func TestReplacedExecutable(t *testing.T) {
	if testing.Short() {
		t.Skip("builds programs")
	}
	if _, err := os.Stat("/proc/self/exe"); err != nil {
		t.Skip("no /proc")
	}
	for _, ldflags := range []string{"", "-buildid="} {
		one, two := build(t, "name", "-ldflags", ldflags),
			build(t, "name", "-ldflags", ldflags+` -X "main.flag=a flag"`)
		first, second := run(t, one), run(t, two)
		for what, change := range map[string]string{"replaced": "mv %[2]s %[1]s", "removed": "rm %[1]s"} {
			exe, other := filepath.Join(t.TempDir(), "exe"), filepath.Join(t.TempDir(), "other")
			for from, to := range map[string]string{one: exe, two: other} {
				if err := os.Link(from, to); err != nil {
					t.Fatal(err)
				}
			}
			// The program starts, and stops itself until its file is another one.
			cmd := exec.Command(exe, "wait")
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var line string
			if _, err := fmt.Fscanf(stdout, "started %s flag\n", &line); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("sh", "-c", fmt.Sprintf(change, exe, other)).CombinedOutput(); err != nil {
				t.Fatalf("%v %s", err, out)
			}
			if err := stdin.Close(); err != nil {
				t.Fatal(err)
			}
			if _, err := fmt.Fscanln(stdout, &line); err != nil || line != first || line == second {
				t.Errorf("%q %s: %s, was %s (%v)", ldflags, what, line, first, err)
			}
			if err := cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
	}
}
