package boltstore

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/internal/listing"
)

// TestNewerServer: that typed objects of a newer server lack fields is in the state, and one
// line of each start says so. Unstructured objects lack none.
func TestNewerServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	warned := 0
	logger := funcr.New(func(_, line string) {
		if strings.Contains(line, "the server is 1.99") {
			warned++
		}
	}, funcr.Options{})
	meta := func(kind string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": kind,
			"metadata": map[string]any{"name": "x", "namespace": "web", "resourceVersion": "5"}}
	}
	claims := map[string]Claim{
		"pods":  {Source: Source{Version: "v1", Resource: "pods", Form: FormTyped}, Example: &corev1.Pod{}},
		"nodes": {Source: Source{Version: "v1", Resource: "nodes", Form: FormTyped}, Example: &corev1.Node{}},
		"things": {Source: Source{Version: "v1", Resource: "things", Form: FormUnstructured},
			Example: &unstructured.Unstructured{Object: meta("Thing")}},
	}
	objects := map[string]runtime.Object{
		"pods":   &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "web", ResourceVersion: "5"}},
		"nodes":  &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "x", ResourceVersion: "5"}},
		"things": &unstructured.Unstructured{Object: meta("Thing")},
	}
	life := func(list bool) {
		db, err := Open(path, Options{Logger: &logger})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for name, c := range claims {
			s, err := db.Claim(c)
			if err != nil {
				t.Fatal(err)
			}
			if list {
				s.Upstream.NoteFacts(func(f *listing.Facts) { f.ServedForm = "1.99>1.37:0123" })
				r, err := s.Upstream.BeginRelist(RelistOptions{
					OnError: func(_ runtime.Object, err error) { t.Error(err) }})
				if err != nil {
					t.Fatal(err)
				}
				if err := r.Page([]runtime.Object{objects[name]}); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Commit("9", time.Now()); err != nil {
					t.Fatal(err)
				}
			}
			if lacks := s.State().LacksFields; strings.Contains(lacks,
				"built for 1.37") != (c.Source.Form == FormTyped) {
				t.Errorf("%s: %q", name, lacks)
			}
		}
	}
	life(true)
	life(false)
	if warned != 2 {
		t.Errorf("%d warnings in two lives", warned)
	}
}
