package controllerruntime

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	// These are needed by controller-runtime's tests of its cache.
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/google/gofuzz"
	_ "github.com/onsi/ginkgo/v2"
	_ "github.com/onsi/gomega"
	_ "sigs.k8s.io/controller-runtime/pkg/envtest"
	_ "sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// suites are controller-runtime's packages whose tests use informers on a server.
var suites = []string{"cache", "cache/internal", "client", "source", "internal/controller", "controller", "builder",
	"cluster", "manager"}

// TestCacheSuite runs controller-runtime's own tests of its cache, and of what is built on
// it, with our informers in place of client-go's. For that it copies the module out of the module cache, and
// changes the lines that make an informer. Each cache has a file of its own. It takes
// minutes: KUBEWAKE_SUITE=1 runs it.
func TestCacheSuite(t *testing.T) {
	if os.Getenv("KUBEWAKE_SUITE") == "" {
		t.Skip("takes minutes: set KUBEWAKE_SUITE")
	}
	tool := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	const module = "sigs.k8s.io/controller-runtime"
	copied := t.TempDir()
	copyTree(t, tool("list", "-m", "-f", "{{.Dir}}", module), copied)
	informers := filepath.Join(copied, "pkg", "cache", "internal", "informers.go")
	change(t, informers,
		"	newInformer := cache.NewSharedIndexInformer\n",
		"	httpClient, newInformer := options.HTTPClient, options.NewInformer\n",
		"	if options.NewInformer != nil {\n		newInformer = options.NewInformer\n	}\n",
		"	if newInformer == nil {\n		config, httpClient, newInformer = onFile(config)\n	}\n",
		"options.HTTPClient,\n		scheme:", "httpClient,\n		scheme:")
	ours, err := os.ReadFile(filepath.Join("testdata", "kubewake.go.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(informers), "kubewake.go"), ours, 0o600); err != nil {
		t.Fatal(err)
	}

	mod := filepath.Join(t.TempDir(), "go.mod")
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(mod), name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tool("mod", "edit", "-replace", module+"="+copied, mod)
	assets, err := filepath.Abs(filepath.Join("..", "..", ".build", "kube"))
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"test", "-count=1", "-p=1", "-modfile", mod, "-timeout", "15m", "-v"}
	for _, name := range suites {
		args = append(args, module+"/pkg/"+name)
	}
	run := exec.CommandContext(t.Context(), "go", args...)
	run.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+assets, "TMPDIR="+t.TempDir())
	out, err := run.CombinedOutput()
	t.Logf("%s", tail(string(out), 4000))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(regexp.MustCompile(`Ran [1-9][0-9]* of [0-9]+ Specs`).FindAll(out, -1)); n != len(suites) {
		t.Errorf("specs of %d packages have run, of %d", n, len(suites))
	}
}

func tail(s string, n int) string { return s[max(len(s)-n, 0):] }

// change replaces each first string in a file by the one that follows it.
func change(t *testing.T, path string, pairs ...string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := string(b)
	for i := 0; i < len(pairs); i += 2 {
		if strings.Count(s, pairs[i]) != 1 {
			t.Fatalf("%s does not have %q once: another version of controller-runtime?", path, pairs[i])
		}
		s = strings.Replace(s, pairs[i], pairs[i+1], 1)
	}
	if err := os.WriteFile(path, []byte(s), 0o600); err != nil {
		t.Fatal(err)
	}
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}
