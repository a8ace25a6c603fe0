package apiserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Kubewake builds the command kubewake and returns its path. It is gone after the test.
func Kubewake(t testing.TB) string {
	t.Helper()
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	const command = "cmd/kubewake"
	root := wd
	for ; ; root = filepath.Dir(root) {
		if _, err := os.Stat(filepath.Join(root, command)); err == nil {
			break
		}
		if root == filepath.Dir(root) {
			t.Fatalf("no %s above %s", command, wd)
		}
	}
	bin := filepath.Join(t.TempDir(), "kubewake")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, ".")
	build.Dir = filepath.Join(root, command)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}
