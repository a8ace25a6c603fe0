package readme

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPackagesFitTwoScreens: the output of go doc for a package that programs import fits
// two screens of 50 lines.
func TestPackagesFitTwoScreens(t *testing.T) {
	for _, pkg := range []string{"boltstore", "fifo", "reflector", "informer", "informer/factory",
		"informer/dynamicinformer", "informer/metadatainformer", "informer/informertest", "informer/metrics",
		"boltstore/stores"} {
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
	for _, file := range []string{"boltstore/options.go", "boltstore/live/server.go", "reflector/options.go",
		"informer/options.go", "informer/durable_event.go", "informer/factory/wake.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, filepath.FromSlash(file)), nil,
			parser.ParseComments)
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

// TestLargeTypesHaveReasons: a type with more than 30 methods or 20 fields says why it is
// one type. Options are: each is a choice of its own.
func TestLargeTypesHaveReasons(t *testing.T) {
	type size struct {
		methods, fields int
		doc             string
	}
	all := map[string]*size{}
	of := func(dir, name string) *size {
		name = dir + "." + name
		if all[name] == nil {
			all[name] = &size{}
		}
		return all[name]
	}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "testdata"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := filepath.Dir(path)
		for _, decl := range f.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				if decl.Recv != nil {
					of(dir, receiver(decl.Recv.List[0].Type)).methods++
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					s, ok := spec.(*ast.TypeSpec)
					if !ok {
						continue
					}
					is := of(dir, s.Name.Name)
					is.doc = decl.Doc.Text() + s.Doc.Text()
					if st, ok := s.Type.(*ast.StructType); ok {
						is.fields = st.Fields.NumFields()
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	large := 0
	for name, is := range all {
		if is.methods <= 30 && is.fields <= 20 || strings.HasSuffix(name, "Options") {
			continue
		}
		large++
		if !strings.Contains(strings.ReplaceAll(is.doc, "\n", " "), "one type because") &&
			!strings.Contains(is.doc, "many fields because") {
			t.Errorf("%s has %d methods and %d fields, and does not say why it is one type", name, is.methods,
				is.fields)
		}
	}
	if large == 0 {
		t.Error("no large types were found")
	}
}

// receiver is the name of a method's type.
func receiver(e ast.Expr) string {
	for {
		switch is := e.(type) {
		case *ast.StarExpr:
			e = is.X
		case *ast.IndexExpr:
			e = is.X
		case *ast.IndexListExpr:
			e = is.X
		case *ast.Ident:
			return is.Name
		default:
			return ""
		}
	}
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
		for _, generated := range []string{"k8s.io/client-go/informers", "k8s.io/client-go/kubernetes/typed",
			"k8s.io/client-go/listers"} {
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
	for _, tool := range []string{"github.com/spf13/cobra", "k8s.io/cli-runtime", "k8s.io/kubectl",
		"sigs.k8s.io/kustomize"} {
		if strings.Contains(string(mod), tool) {
			t.Errorf("go.mod requires %s", tool)
		}
	}
}
