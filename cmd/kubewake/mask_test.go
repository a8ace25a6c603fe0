package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
)

// TestDiffOfSecrets: diff shows no value of a Secret, neither the file's, nor the
// manifest's, nor those in the copy that kubectl apply has made. A field that a manifest
// deletes is found.
func TestDiffOfSecrets(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.db")
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "secrets",
		Form: boltstore.FormTyped}, Example: &corev1.Secret{}})
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Upstream.BeginRelist(boltstore.RelistOptions{})
	if err != nil {
		t.Fatal(err)
	}
	secret := func(name, applied string) *corev1.Secret {
		return &corev1.Secret{Type: corev1.SecretTypeOpaque,
			Data: map[string][]byte{"pw": []byte("hunter2"), "gone": []byte("hunter3")},
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, ResourceVersion: "1",
				Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: applied}}}
	}
	if err := r.Page([]runtime.Object{
		secret("s",
			`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s","namespace":"a"},"data":{"gone":"aHVudGVyMw=="},"stringData":{"pw":"hunter2"}}`+"\n"),
		secret("odd", `hunter2, and no manifest`),
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit("10", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := s.Describe(boltstore.Description{Scope: boltstore.ScopeNamespaced,
		Names: []string{"secret"}}); err != nil {
		t.Fatal(err)
	}
	s.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	manifest := func(name string) string {
		file := filepath.Join(dir, name+".yaml")
		text := "apiVersion: v1\nkind: Secret\ntype: Opaque\nmetadata: {name: " + name + ", namespace: a, labels: " +
			"{x: z}}\nstringData: {pw: hunter4}\n"
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	shown := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &errs},
			append(args, "--db", path)); code != 1 {
			t.Fatalf("%v: %d %s%s", args, code, out.String(), errs.String())
		}
		return out.String() + errs.String()
	}
	for _, name := range []string{"s", "odd", "new"} {
		diff := shown("diff", "-f", manifest(name))
		for _, value := range []string{"hunter", "aHVudGVy"} {
			if strings.Contains(diff, value) {
				t.Errorf("%s: %s", name, diff)
			}
		}
		for _, line := range map[string][]string{
			"s": {"-  gone: '***", "-  pw: '*** (before)'", "+  pw: '*** (after)'"}, "odd": {"+  pw: '*** (after)'"},
			"new": {"+  pw: '***'"},
		}[name] {
			if !strings.Contains(diff, line) {
				t.Errorf("%s: no %q in %s", name, line, diff)
			}
		}
	}
	if diff := shown("diff", "--show-secrets", "-f", manifest("s")); !strings.Contains(diff, `"pw":"hunter2"`) {
		t.Errorf("with --show-secrets: %s", diff)
	}
}
