package readme

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackagesFitTwoScreens: the output of go doc for a package that programs import fits
// two screens of 50 lines.
func TestPackagesFitTwoScreens(t *testing.T) {
	for _, pkg := range []string{"boltstore", "fifo", "reflector", "informer", "informer/factory", "informer/dynamicinformer", "informer/metadatainformer", "informer/informertest", "informer/metrics", "boltstore/stores"} {
		cmd := exec.CommandContext(t.Context(), "go", "doc", "./"+pkg)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if n := strings.Count(string(out), "\n"); n > 100 {
			t.Errorf("%s: go doc shows %d lines", pkg, n)
		}
	}
}

// TestOptionsHaveReasons: the packages that programs import have about 40 options, and
// each says what it is for. A comment may be of several fields that follow it.
func TestOptionsHaveReasons(t *testing.T) {
	const most = 45
	n := 0
	for _, file := range []string{"boltstore/options.go", "boltstore/live/server.go", "reflector/options.go", "informer/options.go", "informer/durable_event.go", "informer/factory/wake.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(file)), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		ast.Inspect(f, func(node ast.Node) bool {
			s, ok := node.(*ast.TypeSpec)
			if !ok || !strings.HasSuffix(s.Name.Name, "Options") {
				return true
			}
			said := ""
			for _, field := range s.Type.(*ast.StructType).Fields.List {
				for _, name := range field.Names {
					if !name.IsExported() {
						continue
					}
					found++
					if field.Doc != nil {
						said = field.Doc.Text()
					}
					if !strings.Contains(said, name.Name) {
						t.Errorf("%s: %s.%s does not say what it is for", file, s.Name.Name, name.Name)
					}
				}
			}
			return true
		})
		if found == 0 {
			t.Errorf("%s has no options", file)
		}
		n += found
	}
	if n > most {
		t.Errorf("there are %d options", n)
	}
	t.Log(n, "options")
}

// TestFactoryIsOfNoProject: the package that wakes generated factories does not link the
// informers and clients of client-go, which a program with factories of its own may not
// need.
func TestFactoryIsOfNoProject(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "./informer/factory")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for dep := range strings.FieldsSeq(string(out)) {
		for _, generated := range []string{"k8s.io/client-go/informers", "k8s.io/client-go/kubernetes/typed", "k8s.io/client-go/listers"} {
			if strings.HasPrefix(dep, generated) {
				t.Errorf("it depends on %s", dep)
			}
		}
	}
}

// TestLibraryWithoutTools: the library's module does not require modules that only the
// command needs.
func TestLibraryWithoutTools(t *testing.T) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range []string{"github.com/spf13/cobra", "k8s.io/cli-runtime", "k8s.io/kubectl", "sigs.k8s.io/kustomize"} {
		if strings.Contains(string(mod), tool) {
			t.Errorf("go.mod requires %s", tool)
		}
	}
}
