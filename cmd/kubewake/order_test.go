package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
)

// TestDescribeWithoutEvents: an object can be described even if the file has no events.
func TestDescribeWithoutEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	fileWith(t, path, []runtime.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "x",
		ResourceVersion: "1"}}})
	var out, errs bytes.Buffer
	code := run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &errs},
		[]string{"describe", "cm", "x", "-n", "web", "--db", path})
	if code != 0 || !strings.Contains(out.String(), "Name:         x") || strings.Contains(out.String(), "Events:") ||
		!strings.Contains(errs.String(), "events are not in the file") {
		t.Errorf("%d:\n%s%s", code, out.String(), errs.String())
	}
}

// TestOneShortName: of several types with one short name kubectl's commands take the first
// one in discovery, as kubectl does, and the types of a category come in that order.
func TestOneShortName(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	fileWith(t, path, []runtime.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "x",
		ResourceVersion: "1"}}})
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := "configmap/x "
	for _, group := range []string{"a.example.com", "b.example.com", "c.example.com"} {
		u := custom("Thing", "x")
		u.SetAPIVersion(group + "/v1")
		u.SetNamespace("web")
		u.SetResourceVersion("1")
		s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Group: group, Version: "v1", Resource: "things",
			Form: boltstore.FormUnstructured}, Example: u})
		if err == nil {
			listed(t, s, []runtime.Object{u})
			err = s.Describe(boltstore.Description{Scope: boltstore.ScopeNamespaced, Names: []string{"cm", "thing"},
				Categories: []string{"every"}})
		}
		if err != nil {
			t.Fatal(err)
		}
		s.Release()
		want += "thing." + group + "/x "
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for range 10 { // the order of a map is random
		for line, want := range map[string]string{"get cm/x": "configmap/x", "get cm,every": strings.TrimSpace(want)} {
			if got := shown(t, append(strings.Fields(line), "-n", "web", "-o", "name", "--db", path)...); got != want {
				t.Fatalf("%s: %s, want %s", line, got, want)
			}
		}
	}
}
