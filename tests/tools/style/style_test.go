// Package style has checks of lint: how long lines are, and which names programs see.
package style

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

const root = "../../.."

// goFiles calls f with each Go file below the root, by its path from there.
func goFiles(t *testing.T, f func(path string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") && path != "."):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go"):
			f(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// literal is a string on one line, or a line of a raw one.
var literal = regexp.MustCompile("`[^`]*`?|\"(?:[^\"\\\\]|\\\\.)*\"")

// TestLineLength: a line has at most 120 columns. A tab counts as four. A line of a test
// may be longer if most of it is a literal, such as an answer or an address.
func TestLineLength(t *testing.T) {
	const most = 120
	n := 0
	goFiles(t, func(path string) {
		n++
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		at := 0
		for line := range strings.Lines(string(text)) {
			at++
			line = strings.TrimRight(line, "\n")
			width := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
			if width > most && !(strings.HasSuffix(path, "_test.go") && mostlyLiteral(line, width)) {
				t.Errorf("%s:%d has %d columns", path, at, width)
			}
		}
	})
	if n == 0 {
		t.Error("there are no Go files")
	}
}

func mostlyLiteral(line string, width int) bool {
	for _, l := range literal.FindAllString(line, -1) {
		if utf8.RuneCountInString(l) > width/2 {
			return true
		}
	}
	return false
}
