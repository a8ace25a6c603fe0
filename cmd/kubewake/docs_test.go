package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// commands returns all commands that help shows, by their man page's name.
func commands(root *cobra.Command) map[string]*cobra.Command {
	found := map[string]*cobra.Command{strings.ReplaceAll(root.CommandPath(), " ", "-"): root}
	for _, sub := range root.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		for page, cmd := range commands(sub) {
			found[page] = cmd
		}
	}
	return found
}

// TestManPages: each command has a man page with examples. No page names a command that
// does not exist, and none calls a command of kubewake kubectl's.
func TestManPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	shown(t, "docs", "man", dir)
	root := newRoot(genericiooptions.IOStreams{})
	all := commands(root)
	if len(all) < 25 {
		t.Errorf("only %d commands", len(all))
	}
	pages, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) != len(all) {
		t.Errorf("%d pages of %d commands", len(pages), len(all))
	}
	named := regexp.MustCompile(`\bkubewake[ -]([a-z][a-z-]*)`)
	theirs := regexp.MustCompile(`\bkubectl ([a-z][a-z-]*)`)
	for page, cmd := range all {
		text, err := os.ReadFile(filepath.Join(dir, page+".1"))
		if err != nil {
			t.Error(err)
			continue
		}
		if !strings.Contains(string(text), "\n.SH EXAMPLE\n") {
			t.Errorf("%s has no example", page)
		}
		plain := strings.NewReplacer(`\-`, "-", `\&`, "", `\fB`, "", `\fP`, "", `\fI`, "", `\fR`,
			"").Replace(string(text))
		_, plain, _ = strings.Cut(plain, "\n.SH ") // after the header
		for _, m := range named.FindAllStringSubmatch(plain, -1) {
			if !isCommand(root, m[1]) && m[0] != "kubewake file" && m[0] != "kubewake for" {
				t.Errorf("%s names %q, which is no command", page, m[0])
			}
		}
		if cmd.Parent() != root || cmd.Name() == "explain" || cmd.Name() == "logs" { // these send people to kubectl's
			continue
		}
		for _, m := range theirs.FindAllStringSubmatch(plain, -1) {
			if m[1] == cmd.Name() {
				t.Errorf("%s calls itself %q", page, m[0])
			}
		}
	}
}

// isCommand says whether a page's name, or the text after the program's name, begins with
// a command.
func isCommand(root *cobra.Command, name string) bool {
	for _, sub := range root.Commands() {
		if name == sub.Name() || strings.HasPrefix(name, sub.Name()+"-") {
			return true
		}
	}
	return false
}

// TestCommandsAreShown: each command of kubewake that help shows is on a page for readers,
// and a script of tests/cli runs it.
func TestCommandsAreShown(t *testing.T) {
	read := func(patterns ...string) string {
		t.Helper()
		var all strings.Builder
		for _, pattern := range patterns {
			paths, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(pattern)))
			if err != nil || len(paths) == 0 {
				t.Fatal(pattern, paths, err)
			}
			for _, path := range paths {
				text, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				all.Write(text)
			}
		}
		return all.String()
	}
	pages, scripts := read("README.md", "docs/*.md", "docs/design/*.md"), read("tests/cli/testdata/*.txtar")
	root := newRoot(genericiooptions.IOStreams{})
	n := 0
	for _, cmd := range root.Commands() {
		name := cmd.Name()
		if !cmd.IsAvailableCommand() || name == "help" || name == "completion" { // these are cobra's
			continue
		}
		n++
		if !regexp.MustCompile("kubewake " + name + `\b|` + "`" + name + "`").MatchString(pages) {
			t.Errorf("%s is in neither README nor docs", name)
		}
		if !regexp.MustCompile(`(?m)^(?:! |\? )?exec kubewake ` + name + `\b`).MatchString(scripts) {
			t.Errorf("no script in tests/cli/testdata runs %s", name)
		}
	}
	if n < 20 {
		t.Errorf("only %d commands", n)
	}
}
