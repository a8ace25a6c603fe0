package main

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestGetStreams: rows come in order while the file is read, with one header, and so do
// the items of lists in JSON and YAML. An encrypted file shows the same.
func TestGetStreams(t *testing.T) {
	const n = 2*rowsAtATime + 7
	dir := t.TempDir()
	path, keyset := filepath.Join(dir, "f.db"), filepath.Join(dir, "f.key")
	var want, page []string
	var objs []runtime.Object
	for i := range n {
		name := fmt.Sprintf("c%04d", i)
		want, page = append(want, "web "+name), append(page, name)
		objs = append(objs, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name,
			ResourceVersion: fmt.Sprint(i + 1),
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m",
				Operation: metav1.ManagedFieldsOperationUpdate}}},
			Data: map[string]string{"[]": "items:\n- <a> & \u2028\t" + name, "long": strings.Repeat("word ", 40),
				"n": "1e3"}})
	}
	fileWith(t, path, objs)

	t.Setenv("KUBEWAKE_DB", path)
	shown := func(args ...string) string {
		t.Helper()
		var out, errs bytes.Buffer
		if code := run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &errs}, args); code != 0 {
			t.Fatalf("%v: %d %s", args, code, errs.String())
		}
		return out.String()
	}
	check := func(args ...string) {
		t.Helper()
		table := strings.Split(strings.TrimSpace(shown(append([]string{"get", "cm", "-A"}, args...)...)), "\n")
		var got []string
		for _, line := range table[1:] {
			got = append(got, strings.Join(strings.Fields(line)[:2], " "))
		}
		if !strings.HasPrefix(table[0], "NAMESPACE ") || !slices.Equal(got, want) {
			t.Errorf("%v: %q and %d rows", args, table[0], len(got))
		}
		if got := strings.Fields(shown(append([]string{"get", "cm", "-n", "web", "-o", "name"},
			args...)...)); len(got) != n || got[n-1] != "configmap/"+page[n-1] {
			t.Errorf("%v: %d names", args, len(got))
		}
		if got := shown(append([]string{"get", "cm", "-A", "-l", "none"}, args...)...); got != "" {
			t.Errorf("%v: %q", args, got)
		}
		for _, format := range []string{"json", "yaml"} {
			for _, selector := range []string{"", "none"} {
				want := whole(t, objs, format, selector)
				if got := shown(append([]string{"get", "cm", "-A", "-o", format, "-l", selector},
					args...)...); got != want {
					t.Errorf("%v: -o %s -l %q: %d bytes, not %d", args, format, selector, len(got), len(want))
				}
			}
		}
	}
	check()

	// A caller that wants no more rows ends it.
	full := &fullWriter{}
	if code := run(t.Context(), genericiooptions.IOStreams{Out: full, ErrOut: &bytes.Buffer{}},
		[]string{"get", "cm", "-A"}); code != 1 || full.writes != 1 {
		t.Error(code, full.writes)
	}

	shown("keys", "generate", keyset)
	shown("keys", "encrypt", "--keyset", keyset)
	check("--keyset", keyset)
}

// TestListInParts: a list in JSON or YAML is written some hundred items at a time, and
// ends with the error of a reader that accepts no more.
func TestListInParts(t *testing.T) {
	for _, format := range []string{"json", "yaml"} {
		out := &writes{}
		g := &get{streams: genericiooptions.IOStreams{Out: out}, output: format}
		r := &rows{get: g, list: &lister{get: g}}
		for i := range 2*rowsAtATime + 1 {
			if err := r.add(custom("Widget", fmt.Sprintf("w%04d", i))); err != nil {
				t.Fatal(err)
			}
			if want := (i + 1) / rowsAtATime; out.n != want || len(r.held) > rowsAtATime {
				t.Fatalf("%s: after %d objects %d parts are written, and %d held", format, i+1, out.n, len(r.held))
			}
		}
		if err := r.end(); err != nil || out.n != 4 {
			t.Errorf("%s: %v, %d parts", format, err, out.n)
		}
		g.streams.Out = &fullWriter{}
		if err := r.end(); err == nil {
			t.Errorf("%s: what cannot be written is no error", format)
		}
	}
}

// writes counts them.
type writes struct{ n int }

func (w *writes) Write(b []byte) (int, error) {
	w.n++
	return len(b), nil
}

// whole is a list of the config maps, printed as one.
func whole(t *testing.T, objs []runtime.Object, format, selector string) string {
	t.Helper()
	var list []*unstructured.Unstructured
	for _, o := range objs {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{Object: content}
		u.SetAPIVersion("v1")
		u.SetKind("ConfigMap")
		if selector == "" {
			list = append(list, u)
		}
	}
	var out bytes.Buffer
	if err := (&get{output: format}).printList(&out, list); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// fileWith writes a file with these config maps, as a mirror would.
func fileWith(t testing.TB, path string, objs []runtime.Object) {
	t.Helper()
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "configmaps",
		Form: boltstore.FormTyped}, Example: &corev1.ConfigMap{},
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}})
	if err != nil {
		t.Fatal(err)
	}
	listed(t, s, objs)
	if err := s.Describe(boltstore.Description{Scope: boltstore.ScopeNamespaced,
		Names: []string{"configmap", "cm"}}); err != nil {
		t.Fatal(err)
	}
	s.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// listed lists the objects into a store, as if the server had confirmed them now.
func listed(t testing.TB, s *boltstore.Claimed, objs []runtime.Object) {
	t.Helper()
	r, err := s.Upstream.BeginRelist(boltstore.RelistOptions{
		OnError: func(_ runtime.Object, err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Page(objs); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit("500000", time.Now()); err != nil {
		t.Fatal(err)
	}
}

type fullWriter struct{ writes int }

func (w *fullWriter) Write([]byte) (int, error) {
	w.writes++
	return 0, errors.New("full")
}
