package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/listing"
)

// exported runs export over a file with the pods, and returns its output.
func exported(t *testing.T, pods []runtime.Object, args ...string) (out, errOut string, code int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.db")
	podsIn(t, path, pods, "")
	var o, e bytes.Buffer
	code = run(t.Context(), genericiooptions.IOStreams{Out: &o, ErrOut: &e},
		append([]string{"export", "pods", "-A", "--db", path}, args...))
	return o.String(), e.String(), code
}

// podsIn makes a file with the pods, served in the form.
func podsIn(t *testing.T, path string, pods []runtime.Object, form string) {
	t.Helper()
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "pods",
		Form: boltstore.FormTyped}, Example: &corev1.Pod{}})
	if err != nil {
		t.Fatal(err)
	}
	s.Upstream.NoteFacts(func(f *listing.Facts) { f.ServedForm = form })
	r, err := s.Upstream.BeginRelist(boltstore.RelistOptions{OnError: func(_ runtime.Object, err error) {
		t.Error(err)
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Page(pods); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit("9", time.Now()); err != nil {
		t.Fatal(err)
	}
	s.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func namedPod(name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, UID: "u", ResourceVersion: "5", Generation: 3,
			CreationTimestamp: metav1.Unix(1, 0),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m", Operation: "Update",
				FieldsV1: metav1.NewFieldsV1("{}")}}},
		Spec:   corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if change != nil {
		change(p)
	}
	return p
}

// TestExport: manifests have nothing that the server sets in metadata. Objects with a
// controller are exported only on request, without it, and objects that are being deleted
// never.
func TestExport(t *testing.T) {
	pods := []runtime.Object{
		namedPod("free", nil),
		namedPod("gone", func(p *corev1.Pod) {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.Unix(2, 0)), new(int64)
		}),
		namedPod("owned", func(p *corev1.Pod) {
			p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "r",
				UID: "o", Controller: new(true)}}
		}),
	}
	one := func(name string) string {
		return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\n  namespace: web\nspec:\n  containers: " +
			"null\n  nodeName: n1\n"
	}
	out, errOut, code := exported(t, pods)
	if want := one("free"); out != want || code != 0 {
		t.Errorf("exit code %d, got\n%s\nwant\n%s", code, out, want)
	}
	for _, why := range []string{leftOwned, leftDeleting} {
		if !strings.Contains(errOut, "1 objects are left out: "+why) {
			t.Errorf("not told that %s: %s", why, errOut)
		}
	}
	if out, _, _ := exported(t, pods, "--owned"); out != one("free")+"---\n"+one("owned") {
		t.Errorf("with --owned:\n%s", out)
	}
}

// TestExportStaysInItsFolder: no object's name leads to a file elsewhere, nor does a
// link in the folder.
func TestExportStaysInItsFolder(t *testing.T) {
	for _, name := range []string{"..", ".", "../../x", "a/b", ""} {
		dir := t.TempDir()
		to := filepath.Join(dir, "a", "to")
		_, errOut, code := exported(t, []runtime.Object{namedPod(name, nil)}, "--to", to)
		if code == 0 && name != "" { // an object without a name has no key, and is not in the file
			t.Errorf("%q: exported: %s", name, errOut)
		}
		none(t, dir, to)
	}
	dir := t.TempDir()
	to, elsewhere := filepath.Join(dir, "to"), t.TempDir()
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, filepath.Join(to, "pods")); err != nil {
		t.Skip(err) // Windows asks for a privilege
	}
	if _, errOut, code := exported(t, []runtime.Object{namedPod("x", nil)}, "--to", to); code == 0 {
		t.Errorf("exported through a link: %s", errOut)
	}
	none(t, elsewhere, "")
}

// none fails the test if there is a file below dir.
func none(t *testing.T, dir, but string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			t.Errorf("%s was written, beside %s", path, but)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestExportOfLongNames: a name that no file can have is an error that says what to do. So is
// one that would control the terminal, which the error does not.
func TestExportOfLongNames(t *testing.T) {
	to := t.TempDir()
	if _, errOut, code := exported(t, []runtime.Object{namedPod(strings.Repeat("p", 250), nil)}, "--to",
		to); code != 0 {
		t.Errorf("exit code %d: %s", code, errOut)
	}
	for _, name := range []string{strings.Repeat("p", 251), "\x1b[2J/"} {
		if _, errOut, code := exported(t, []runtime.Object{namedPod(name, nil)}, "--to", to); code != 1 ||
			!strings.Contains(errOut, "export it without --to") || strings.Contains(errOut, "\x1b") {
			t.Errorf("exit code %d: %q", code, errOut)
		}
	}
}

// TestExportOfJobs: a Job that the server gave its selector is exported without it, since a
// server refuses the UID of another Job. A selector of the user's own stays.
func TestExportOfJobs(t *testing.T) {
	for manual, want := range map[bool]string{false: "map[app:a]", true: "map[app:a controller-uid:u]"} {
		labels := func() map[string]any { return map[string]any{"app": "a", "controller-uid": "u"} }
		u := manifest(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "batch/v1", "kind": "Job",
			"metadata": map[string]any{"labels": labels()},
			"spec": map[string]any{"manualSelector": manual,
				"selector": map[string]any{"matchLabels": map[string]any{"controller-uid": "u"}},
				"template": map[string]any{"metadata": map[string]any{"labels": labels()}}}}})
		_, selects, _ := unstructured.NestedMap(u.Object, "spec", "selector")
		template, _, _ := unstructured.NestedMap(u.Object, "spec", "template", "metadata", "labels")
		if fmt.Sprint(u.GetLabels()) != want || fmt.Sprint(template) != want || selects != manual {
			t.Errorf("manualSelector %t: %v", manual, u.Object)
		}
	}
}
