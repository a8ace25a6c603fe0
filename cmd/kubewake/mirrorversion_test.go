package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubeapi/printcolumns"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestOtherVersion: if the server has a type in another version or scope than the file,
// it is mirrored as the server has it. A type that the server has as in the file, or not
// at all, is not changed.
func TestOtherVersion(t *testing.T) {
	gadget := schema.GroupVersionKind{Group: "b.example.org", Version: "v1", Kind: "Gadget"}
	size := printcolumns.Column{Name: "Size", Type: "integer", Format: "int32", Description: "how big",
		JSONPath: ".spec.size", Priority: 1}
	sim := kubesim.New(kubesim.Options{Resources: append(kubesim.DefaultResources(), kubesim.Resource{
		GroupVersionKind: gadget, Plural: "gadgets", Namespaced: true, Categories: []string{"all"},
		Columns: []printcolumns.Column{size}})})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	for _, tc := range []struct {
		group, version string
		scope, want    boltstore.Scope // "" for no other
	}{
		{"b.example.org", "v1", boltstore.ScopeNamespaced, ""},
		{"b.example.org", "v1", "", ""},
		{"b.example.org", "v1", boltstore.ScopeCluster, boltstore.ScopeNamespaced},
		{"b.example.org", "v1beta1", boltstore.ScopeNamespaced, boltstore.ScopeNamespaced},
		{"b.example.org", "v1beta1", boltstore.ScopeCluster, boltstore.ScopeNamespaced},
		{"c.example.org", "v1", boltstore.ScopeCluster, ""},
		{"", "v1", boltstore.ScopeCluster, ""},
	} {
		r := resource{gvr: schema.GroupVersionResource{Group: tc.group, Version: tc.version, Resource: "gadgets"}}
		r.Scope = tc.scope
		other, ok := otherVersion(t.Context(), sim.RESTConfig(), r)
		if ok != (tc.want != "") || ok &&
			(other.Scope != tc.want || other.gvk != gadget ||
				other.gvr != gadget.GroupVersion().WithResource("gadgets")) {
			t.Errorf("%s/%s, %q: %v %+v", tc.group, tc.version, tc.scope, ok, other)
		}
		if ok && (!slices.Equal(other.Categories, []string{"all"}) ||
			!slices.Equal(other.Columns, []boltstore.Column{boltstore.Column(size)})) {
			t.Errorf("it is described as %+v", other.Description)
		}
	}
}

// TestNoColumns: a definition that the server does not show, or that is odd, is not an
// error.
func TestNoColumns(t *testing.T) {
	answer, code := "", 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprint(w, answer) // a client that does not get it fails the test
	}))
	t.Cleanup(server.Close)
	client, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	for text, status := range map[string]int{
		`{"kind":"Status","status":"Failure","code":403,"reason":"Forbidden"}`:  http.StatusForbidden,
		`{"kind":"Status","status":"Failure","code":404,"reason":"NotFound"}`:   http.StatusNotFound,
		`{"spec":{"versions":[{"name":"v2","additionalPrinterColumns":[{}]}]}}`: http.StatusOK,
		`{"spec":[]}`: http.StatusOK,
		`no JSON`:     http.StatusOK,
	} {
		answer, code = text, status
		if got := columnsIn(t.Context(), client.RESTClient(),
			schema.GroupVersionResource{Group: "b.example.org", Version: "v1", Resource: "gadgets"}); got != nil {
			t.Errorf("%s: %+v", text, got)
		}
	}
	answer, code = `{"spec":{"versions":[{"name":"v1"}]}}`, http.StatusOK
	if got := columnsIn(t.Context(), client.RESTClient(),
		schema.GroupVersionResource{Group: "b.example.org", Version: "v1", Resource: "gadgets"}); got == nil ||
		len(got) > 0 {
		t.Errorf("a definition without columns: %#v", got)
	}
}

// TestNamesIn: a type is known by its kind before it has an object.
func TestNamesIn(t *testing.T) {
	for _, tc := range []struct {
		of   metav1.APIResource
		want []string
	}{
		{metav1.APIResource{Name: "gadgets", SingularName: "gizmo", Kind: "Gadget",
			ShortNames: []string{"gd", "gizmo"}}, []string{"gizmo", "gadget", "gd"}},
		{metav1.APIResource{Name: "pods", Kind: "Pod"}, []string{"pod"}},
	} {
		if got := namesIn(tc.of); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q", tc.of.Name, got)
		}
	}
}

// TestMirrorOfWhatIsNotListed: a type that the server never lists is an error; the mirror
// does not wait for ever.
func TestMirrorOfWhatIsNotListed(t *testing.T) {
	answers := map[string]any{
		"/api":  metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis": metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}},
		"/api/v1": metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{{Name: "bindings", SingularName: "binding", Namespaced: true,
				Kind: "Binding", Verbs: metav1.Verbs{"create"}}}},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := answers[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	t.Setenv("HOME", t.TempDir()) // kubectl's cache
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var errs bytes.Buffer
	args := []string{"mirror", "bindings", "-A", "--server", server.URL, "--no-socket", "--db",
		filepath.Join(t.TempDir(), "f.db")}
	code := run(ctx, genericiooptions.IOStreams{Out: io.Discard, ErrOut: &errs}, args)
	if want := "Error: bindings cannot be mirrored: the server does not list them, it only lets clients create them\n"; code != 1 || errs.String() != want {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}
