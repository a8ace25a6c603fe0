package readme

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages returns the project's pages for readers, by path below the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob(filepath.Join(root, "docs", "design", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, path := range append(append(found, more...), filepath.Join(root, "README.md"),
		filepath.Join(root, "CHANGELOG.md")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.ToSlash(name)] = string(text)
	}
	return all
}

// testFuncs returns the names of all tests and fuzz targets in the tree, each
// with the folders that have it, and the folders that have any.
func testFuncs(t *testing.T) (names map[string][]string) {
	t.Helper()
	names = map[string][]string{}
	decl := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, m := range decl.FindAllSubmatch(text, -1) {
			dir, _ := filepath.Rel(root, filepath.Dir(path))
			names[string(m[1])] = append(names[string(m[1])], filepath.ToSlash(dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestDocsNameTests: each test that a page names exists.
func TestDocsNameTests(t *testing.T) {
	known := testFuncs(t)
	quoted := regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z]\\w*)`")
	for page, text := range pages(t) {
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			if known[m[1]] == nil {
				t.Errorf("%s names %s, which no file declares", page, m[1])
			}
		}
	}
}

// TestDocsRunTests: each part of a pattern in a go test command of a page matches a test
// or benchmark of the package that the command names.
func TestDocsRunTests(t *testing.T) {
	known := testFuncs(t)
	command := regexp.MustCompile("`([^`]*go test [^`]*-(?:run|bench) [^`]*)`")
	run := regexp.MustCompile(`-(?:run|bench) '?([^' ]+)'?`)
	n := 0
	for page, text := range pages(t) {
		for _, m := range command.FindAllStringSubmatch(text, -1) {
			words := strings.Fields(m[1])
			dir := strings.TrimPrefix(words[len(words)-1], "./")
			if strings.Contains(m[1], "cd tests") {
				dir = "tests/" + dir
			}
			var parts []string
			for _, flag := range run.FindAllStringSubmatch(m[1], -1) {
				parts = append(parts, strings.Split(flag[1], "|")...)
			}
			for _, part := range parts {
				if part == "^$" {
					continue // no test, but benchmarks
				}
				pattern, err := regexp.Compile(part)
				if err != nil {
					t.Errorf("%s: %s: %v", page, m[1], err)
					continue
				}
				n++
				if !matches(known, pattern, dir) {
					t.Errorf("%s: no test of %s matches %q: %s", page, dir, part, m[1])
				}
			}
		}
	}
	if n < 12 {
		t.Errorf("only %d patterns were found", n)
	}
}

func matches(known map[string][]string, pattern *regexp.Regexp, dir string) bool {
	for name, dirs := range known {
		if !pattern.MatchString(name) {
			continue
		}
		for _, d := range dirs {
			if d == dir {
				return true
			}
		}
	}
	return false
}

// TestDocsLink: each link of a page to a file or a heading leads somewhere.
func TestDocsLink(t *testing.T) {
	all := pages(t)
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code := regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	for page, text := range all {
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(text, ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			path, heading, _ := strings.Cut(m[1], "#")
			target := page
			if path != "" {
				target = filepath.ToSlash(filepath.Join(filepath.Dir(page), path))
			}
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(target))); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
			if heading != "" && !hasHeading(all[target], heading) {
				t.Errorf("%s links to %s, which has no such heading", page, m[1])
			}
		}
	}
}

// hasHeading says whether a page has a heading with this anchor, as GitHub
// makes them.
func hasHeading(page, anchor string) bool {
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, line := range strings.Split(page, "\n") {
		if h := strings.TrimLeft(line, "#"); h != line && strings.HasPrefix(h, " ") {
			if strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(strings.TrimSpace(h)), ""), " ",
				"-") == anchor {
				return true
			}
		}
	}
	return false
}

// TestEntriesAreShort: the README and the entry to the design stay short.
func TestEntriesAreShort(t *testing.T) {
	for page, most := range map[string]int{"README.md": 10 << 10, "docs/design.md": 12 << 10} {
		if n := len(pages(t)[page]); n > most {
			t.Errorf("%s has %d bytes, more than %d: move parts to the pages that it links to", page, n, most)
		}
	}
}

// TestDocsNameCode: each Go name that a page of the design has in code type is a word of
// the code. This keeps the tables of states in step with the code.
func TestDocsNameCode(t *testing.T) {
	words := map[string]bool{}
	word := regexp.MustCompile(`[A-Za-z_]\w*`)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, w := range word.FindAll(text, -1) {
			words[string(w)] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`([A-Za-z_]\\w*(?:\\.\\w+)*)(?:\\([^`)]*\\))?`")
	for page, text := range pages(t) {
		if !strings.HasPrefix(page, "docs/design") && page != "README.md" && page != "docs/library.md" {
			continue
		}
		for _, m := range name.FindAllStringSubmatch(text, -1) {
			for _, w := range strings.Split(m[1], ".") {
				if !words[w] && !strings.HasPrefix(w, "HTTP2_") { // apimachinery's environment
					t.Errorf("%s names %s, and %s is not in the code", page, m[1], w)
				}
			}
		}
	}
}
