package readme

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow is what TestHosted looks at in a file of .github/workflows.
type workflow struct {
	On   map[string]any `json:"true"` // YAML takes on for a boolean
	Jobs map[string]struct {
		TimeoutMinutes int `json:"timeout-minutes"`
		Steps          []struct{ Uses, Run string }
	}
	Permissions map[string]string
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// TestHosted: the workflows of a public forge only read the tree, and call targets of the
// Makefile and nothing else, but for a checkout and Go.
func TestHosted(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := strings.Fields(regexp.MustCompile(`(?m)^\.PHONY: (.*)$`).FindStringSubmatch(string(makefile))[1])
	allowed := regexp.MustCompile(`^actions/(checkout|setup-go)@v\d+$`)
	command := regexp.MustCompile(`^make ([a-z]+)( [A-Z]+=\w+)?$`)
	paths, err := filepath.Glob(filepath.Join(root, ".github", "workflows", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var called []string
	for _, path := range paths {
		var w workflow
		readYAML(t, path, &w)
		if len(w.On) == 0 || len(w.Jobs) == 0 {
			t.Errorf("%s never runs anything", path)
		}
		if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
			t.Errorf("%s may do more than read: %v", path, w.Permissions)
		}
		for name, job := range w.Jobs {
			if job.TimeoutMinutes == 0 {
				t.Errorf("%s: %s has no timeout", path, name)
			}
			for _, step := range job.Steps {
				run := command.FindStringSubmatch(step.Run)
				switch {
				case allowed.MatchString(step.Uses) && step.Run == "":
				case run == nil || !slices.Contains(targets, run[1]):
					t.Errorf("%s: %s does %v, which is no target of the Makefile", path, name, step)
				default:
					called = append(called, run[1])
				}
			}
		}
	}
	slices.Sort(called)
	if want := []string{"check", "fuzz", "test", "torture"}; !slices.Equal(called, want) {
		t.Errorf("they call %v, not %v", called, want)
	}
}

// TestDependabot: Dependabot looks after each module, and after the workflows.
func TestDependabot(t *testing.T) {
	var config struct {
		Version int
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"`
			Directory   string
			Directories []string
		}
	}
	readYAML(t, filepath.Join(root, ".github", "dependabot.yml"), &config)
	var got []string
	for _, u := range config.Updates {
		for _, dir := range append(u.Directories, u.Directory) {
			if dir != "" {
				got = append(got, u.Ecosystem+" "+dir)
			}
		}
	}
	want := []string{"github-actions /"}
	err := fs.WalkDir(os.DirFS(root), ".", func(file string, _ fs.DirEntry, err error) error {
		if path.Base(file) == "go.mod" {
			want = append(want, "gomod "+path.Join("/", path.Dir(file)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(got)
	slices.Sort(want)
	if config.Version != 2 || !slices.Equal(got, want) {
		t.Errorf("version %d looks after %v, not %v", config.Version, got, want)
	}
}
