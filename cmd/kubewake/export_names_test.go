package main

import (
	"bytes"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubectl "k8s.io/cli-runtime/pkg/resource"
)

// applied are the objects that kubectl apply -f reads, -R if path is a folder, by name.
func applied(t *testing.T, path string, in string) map[string]*unstructured.Unstructured {
	t.Helper()
	b := kubectl.NewBuilder(genericclioptions.NewConfigFlags(false)).Local().Unstructured()
	if in != "" {
		b = b.Stream(strings.NewReader(in), "stdin")
	} else {
		b = b.FilenameParam(false, &kubectl.FilenameOptions{Filenames: []string{path}, Recursive: true})
	}
	infos, err := b.Flatten().Do().Infos()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*unstructured.Unstructured{}
	for _, i := range infos {
		found[i.Name] = i.Object.(*unstructured.Unstructured)
	}
	return found
}

// TestExportsEachName: roles may have names with colons, names that differ only in case, and
// those of Windows' devices. Each system can have their files, and kubectl reads them.
func TestExportsEachName(t *testing.T) {
	names := []string{
		"system:node", "a*b", `a\b`, "a<b>|?\"", "Reader", "reader", "READER",
		"aux", "com1.x", "auxiliary", "a.", "ü", "plain-1.x_y",
	}
	var pods []runtime.Object
	for _, name := range names {
		pods = append(pods, namedPod(name, nil))
	}
	to := t.TempDir()
	if _, errOut, code := exported(t, pods, "--to", to); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	files := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(to, "pods", "web"), func(_ string, d fs.DirEntry, err error) error {
		if name := strings.ToUpper(d.Name()); !d.IsDir() {
			base, _, _ := strings.Cut(name, ".")
			if files[name] || strings.ContainsAny(name, `<>:"/\|?* `) ||
				slices.Contains([]string{"CON", "AUX", "COM1"}, base) {
				t.Errorf("Windows cannot have %s", d.Name())
			}
			files[name] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Sorted(maps.Keys(applied(t, to, ""))); !slices.Equal(got, slices.Sorted(slices.Values(names))) {
		t.Errorf("kubectl reads %q", got)
	}
	if !files["PLAIN-1.X_Y.YAML"] || len(files) != len(names) {
		t.Errorf("files %v", files)
	}
}

// TestExportGoesOn: an object whose name the file system does not take is named and left out.
// The others are exported.
func TestExportGoesOn(t *testing.T) {
	long := strings.Repeat("a", 253)
	to := t.TempDir()
	pods := []runtime.Object{namedPod(long, nil), namedPod("b", nil), namedPod("x/y", nil), namedPod("z", nil)}
	_, errOut, code := exported(t, pods, "--to", to)
	if got := slices.Sorted(maps.Keys(applied(t, to, ""))); !slices.Equal(got, []string{"b", "z"}) {
		t.Errorf("exported %q", got)
	}
	for _, want := range []string{"web/" + long, "web/x/y", "2 objects could not be exported"} {
		if code != 1 || !strings.Contains(errOut, want) {
			t.Errorf("exit code %d, without %s: %s", code, want, errOut)
		}
	}
}

// TestExportsEachValue: a manifest has each character of each value, also those that the
// library for YAML refuses or takes for a line break.
func TestExportsEachValue(t *testing.T) {
	const odd = "a\x00\x01\x7f\u0080\u0085\u009f\u00a0\u2028\ufeff\ufffd\ufffe\uffff\U0001f600\r\n b\\u007f\t"
	pods := []runtime.Object{namedPod("other", nil), namedPod("odd", func(p *corev1.Pod) {
		p.Annotations = map[string]string{"a": odd, "b" + odd: "x"}
	})}
	to := t.TempDir()
	if _, errOut, code := exported(t, pods, "--to", to); code != 0 {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	out, errOut, code := exported(t, pods)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut)
	}
	for _, found := range []map[string]*unstructured.Unstructured{applied(t, to, ""), applied(t, "", out)} {
		if len(found) != 2 {
			t.Fatalf("kubectl reads %v", found)
		}
		if a := found["odd"].GetAnnotations(); a["a"] != odd || a["b"+odd] != "x" {
			t.Errorf("%q", a)
		}
	}
}

// TestNewerServer: what shows whole objects says that the file lacks fields of a newer server.
func TestNewerServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	podsIn(t, path, []runtime.Object{namedPod("x", nil)}, "1.99>1.37:0123")
	for _, args := range [][]string{
		{"export", "pods", "-A"}, {"get", "pods", "-A", "-o", "yaml"}, {"get", "pods", "-A", "-o", "json"},
		{"compare", "pods", "-A", "--content", "--with", path}, {"status"},
	} {
		var o, e bytes.Buffer
		code := run(t.Context(), genericiooptions.IOStreams{Out: &o, ErrOut: &e}, append(args, "--db", path))
		if code != 0 || strings.Count(e.String(), "the server is 1.99") == 0 || strings.Contains(o.String(), "1.99") {
			t.Errorf("%s: exit code %d: %s", args, code, e.String())
		}
	}
}
