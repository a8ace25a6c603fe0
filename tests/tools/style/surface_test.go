package style

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write surface.txt")

// TestSurface: surface.txt has each exported name of the packages that programs import,
// with its type. A name that comes, goes or changes shows there, in the commit's diff:
//
//	cd tests/tools && go test ./style -update
func TestSurface(t *testing.T) {
	var names surface
	goFiles(t, func(path string) {
		dir := filepath.Dir(path)
		for _, other := range []string{"cmd", "tests", "internal"} {
			if dir == other || strings.HasPrefix(dir, other+"/") || strings.Contains(dir+"/", "/internal/") {
				return
			}
		}
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		names.addFile(dir, f)
	})
	slices.Sort(names)
	names = slices.Compact(names) // what has a file for each system
	got := strings.Join(names, "\n") + "\n"
	if *update {
		if err := os.WriteFile("surface.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("surface.txt")
	if err != nil {
		t.Fatal(err)
	}
	was := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	for _, name := range names {
		if !slices.Contains(was, name) {
			t.Errorf("new: %s", name)
		}
	}
	for _, name := range was {
		if !slices.Contains(names, name) {
			t.Errorf("gone: %s", name)
		}
	}
	if t.Failed() {
		t.Log("if that is meant: cd tests/tools && go test ./style -update")
	}
}

// surface has a line for each exported name.
type surface []string

func (s *surface) add(pkg, format string, args ...any) {
	*s = append(*s, pkg+": "+fmt.Sprintf(format, args...))
}

func (s *surface) addFile(pkg string, f *ast.File) {
	for _, decl := range f.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			s.addFunc(pkg, d)
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.ValueSpec:
					for _, name := range spec.Names {
						if name.IsExported() {
							s.add(pkg, "%s %s", d.Tok, name.Name)
						}
					}
				case *ast.TypeSpec:
					if spec.Name.IsExported() {
						s.addType(pkg, spec)
					}
				}
			}
		}
	}
}

func (s *surface) addFunc(pkg string, d *ast.FuncDecl) {
	if !d.Name.IsExported() {
		return
	}
	signature := strings.TrimPrefix(text(d.Type), "func")
	if d.Recv == nil {
		s.add(pkg, "func %s%s", d.Name.Name, signature)
		return
	}
	of := d.Recv.List[0].Type
	if name := strings.TrimLeft(text(of), "*"); ast.IsExported(name) {
		s.add(pkg, "method (%s) %s%s", text(of), d.Name.Name, signature)
	}
}

func (s *surface) addType(pkg string, spec *ast.TypeSpec) {
	var members *ast.FieldList
	switch is := spec.Type.(type) {
	case *ast.StructType:
		s.add(pkg, "type %s struct", spec.Name.Name)
		members = is.Fields
	case *ast.InterfaceType:
		s.add(pkg, "type %s interface", spec.Name.Name)
		members = is.Methods
	default:
		s.add(pkg, "type %s %s", spec.Name.Name, text(spec.Type))
		return
	}
	for _, m := range members.List {
		if len(m.Names) == 0 { // embedded
			s.add(pkg, "type %s has %s", spec.Name.Name, text(m.Type))
		}
		for _, name := range m.Names {
			if name.IsExported() {
				s.add(pkg, "type %s has %s %s", spec.Name.Name, name.Name, text(m.Type))
			}
		}
	}
}

// text is a type on one line.
func text(e ast.Expr) string {
	var b bytes.Buffer
	if err := printer.Fprint(&b, token.NewFileSet(), e); err != nil {
		return err.Error()
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
