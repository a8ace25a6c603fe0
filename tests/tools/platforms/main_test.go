package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCheck: an error counts on the platform that has it, even in a test.
func TestCheck(t *testing.T) {
	for name, file := range map[string]string{"package": "a_windows.go", "test": "a_windows_test.go"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, content := range map[string]string{
				"go.mod": "module a\n", "a.go": "package a\n", file: "package a\n\nvar X int = \"no number\"\n",
			} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if errs := check(dir, "linux/arm"); len(errs) > 0 {
				t.Error(errs)
			}
			if errs := check(dir, "windows/amd64"); len(errs) == 0 {
				t.Error("the error is not seen")
			}
		})
	}
	if errs := check(t.TempDir(), "plan9"); len(errs) == 0 {
		t.Error("half a platform is accepted")
	}
}
