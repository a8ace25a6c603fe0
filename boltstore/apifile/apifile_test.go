package apifile

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
)

// TestSources: a request is answered from one source that covers it, or gets 503.
func TestSources(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	h := New(db, Options{})
	filetest.Relist(t, filetest.Claim(t, db, source1("configmaps", "a", ""), &corev1.ConfigMap{}), "10",
		configMap("a", "x", 1), configMap("a", "y", 2))
	filetest.Relist(t, filetest.Claim(t, db, source1("configmaps", "", "app=shop"), &corev1.ConfigMap{}), "20",
		configMap("a", "y", 2, "app=shop"), configMap("b", "z", 3, "app=shop"))
	const all, of = "/api/v1/configmaps", "/api/v1/namespaces/"
	expect(t, h, of+"a/configmaps", 200, "a/x a/y")
	for _, same := range []string{"app%3Dshop", "app%3D%3Dshop", "app+in+(shop)"} {
		expect(t, h, all+"?labelSelector="+same, 200, "a/y b/z")
	}
	expect(t, h, all+"?labelSelector=app%3Dshop,tier%3Dweb", 200, "")
	expect(t, h, of+"b/configmaps?labelSelector=app%3Dshop", 200, "b/z")
	for _, path := range []string{all, of + "b/configmaps", of + "b/configmaps/y", all + "?labelSelector=app",
		all + "?watch=true"} {
		a := expect(t, h, path, 503, "configmaps/v1 -n a")
		if a.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	expect(t, h, of+"a/configmaps/x", 200, "")
	expect(t, h, of+"b/configmaps/z", 200, "") // a source has it
	expect(t, h, of+"a/configmaps/z", 404, `configmaps \"z\" not found`)
	expect(t, h, "/api/v1/pods", 404, "could not find the requested resource")
	expect(t, h, of+"a", 403, "namespaces are not kept here") // it may be there

	// A source of everything is preferred.
	s := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
	expect(t, h, all, 429, "not been listed yet")
	filetest.Relist(t, s, "30", configMap("b", "z", 3), configMap("c", "w", 25))
	expect(t, h, all, 200, "b/z c/w")
	expect(t, h, of+"b/configmaps/z", 200, "")
}

// TestRefused: requests that the file cannot answer get the API's status.
func TestRefused(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	filetest.Relist(t, filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{}), "10",
		configMap("a", "x", 1))
	secret := &corev1.Secret{ObjectMeta: meta("a", "s", 2), Data: map[string][]byte{"k": []byte("hunter2")}}
	filetest.Relist(t, filetest.Claim(t, db, source1("secrets", "", ""), &corev1.Secret{}), "10", secret)
	filetest.Claim(t, db, source1("pods", "", ""), &corev1.Pod{})
	h := New(db, Options{})
	for _, path := range []string{"/api/v1/secrets", "/api/v1/namespaces/a/secrets/s", "/api/v1/secrets?watch=true"} {
		if a := expect(t, h, path, 403, "not served"); strings.Contains(a.body, "aHVudGVy") {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	expect(t, New(db, Options{Secrets: true}), "/api/v1/secrets", 200, "a/s")
	if a := expect(t, h, "/api/v1/pods", 429, `"message":"pods/v1: `); a.header.Get("Retry-After") != "1" ||
		!strings.Contains(a.body, "not been listed yet") {
		t.Errorf("Retry-After %q: %s", a.header.Get("Retry-After"), a.body)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		for _, path := range []string{"/api/v1/namespaces/a/configmaps", "/api/v1/namespaces/a/configmaps/x", "/api",
			"/api/v1", "/apis", "/version"} {
			if a := ask(t, h, method, path); a.code != http.StatusMethodNotAllowed {
				t.Errorf("%s %s: %d %s", method, path, a.code, a.body)
			}
		}
	}
	expect(t, h, "/api/v1/namespaces/a/configmaps", 200, "a/x")
	// they have none
	expect(t, h, "/api/v1/namespaces/a/configmaps/x/status", 404, "could not find the requested resource")
	filetest.Relist(t, filetest.Claim(t, db, source1("services", "", ""), &corev1.Service{}), "10",
		&corev1.Service{ObjectMeta: meta("a", "x", 1)})
	expect(t, h, "/api/v1/namespaces/a/services/x/status", 200, "")
	// authorised as another list than that of services
	expect(t, h, "/api/v1/namespaces/a/services//status", 404, "could not find the requested resource")
	expect(t, h, "/api/v1/configmaps?resourceVersionMatch=Exact&resourceVersion=9", 410, "too old")
	for _, path := range []string{"//api/v1/configmaps", "/api//v1/configmaps", "/api/v1//configmaps",
		"/api/v1/namespaces/a//configmaps", "/api/v1/namespaces/a/configmaps//x"} {
		expect(t, h, path, 404, "not f") // as at a server
	}
	expect(t, h, "/api/v1/namespaces//configmaps//", 200, "a/x") // likewise
	expect(t, h, "/api/v1/namespaces/a/configmaps/..", 400, `Name parameter invalid: \"..\": may not be '..'`)
	expect(t, h, "/api/v1/namespaces/a/configmaps/x%25", 400, `Name parameter invalid: \"x%\": may not contain '%'`)
}

// TestNoPages: a limit is not applied, and no list gives a continue token. A token, as of a
// server, gets 410. A list of an exact version shows that state, until the contents are set
// aside.
func TestNoPages(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	s := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
	filetest.Relist(t, s, "10", configMap("a", "b", 1), configMap("a", "d", 2), configMap("b", "a", 3))
	h := New(db, Options{})
	const path = "/api/v1/configmaps?limit=1"
	versions := []string{"", "&resourceVersion=0", "&resourceVersion=10",
		"&resourceVersion=5&resourceVersionMatch=NotOlderThan"}
	for _, at := range versions {
		meta := expect(t, h, path+at, 200, "a/b a/d b/a").object.Object["metadata"].(map[string]any)
		if meta["continue"] != nil || meta["remainingItemCount"] != nil || meta["resourceVersion"] != "10" {
			t.Errorf("%s: %v", at, meta)
		}
	}
	for _, rv := range []string{"10", "-1"} {
		text := `{"v":"meta.k8s.io/v1","rv":` + rv + `,"start":"a/d"}`
		token := "&continue=" + base64.RawURLEncoding.EncodeToString([]byte(text))
		gone := expect(t, h, path+token, 410, "a list of a file has no pages")
		if meta := gone.object.Object["metadata"].(map[string]any); meta["continue"] != nil {
			t.Errorf("the answer leads to a next page: %v", meta)
		}
	}
	filetest.Relist(t, s, "20", configMap("a", "c", 11), configMap("b", "a", 12))
	const exact = "&resourceVersionMatch=Exact&resourceVersion=10"
	expect(t, h, path+exact, 200, "a/b a/d b/a")
	expect(t, h, path+"&resourceVersion=10", 200, "a/b a/d b/a") // with a limit that is exact, too
	expect(t, h, "/api/v1/namespaces/a/configmaps?"+exact, 200, "a/b a/d")
	if err := s.Upstream.Empty(); err != nil {
		t.Fatal(err)
	}
	filetest.Relist(t, s, "15", configMap("a", "b", 1))
	expect(t, h, path+exact, 410, "The resourceVersion for the provided list is too old.")
}

// TestBuiltInShortNames: a program that does not describe its types has the built-in
// short names.
func TestBuiltInShortNames(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
	nodes := filetest.Claim(t, db, source1("nodes", "", ""), &corev1.Node{})
	if err := nodes.Describe(boltstore.Description{Names: []string{"node", "nd"}}); err != nil {
		t.Fatal(err)
	}
	a := ask(t, New(db, Options{}), http.MethodGet, "/api/v1")
	if !strings.Contains(a.body, `"shortNames":["cm"]`) || !strings.Contains(a.body, `"shortNames":["nd"]`) {
		t.Error(a.body)
	}
}

// TestDiscovery: client-go finds the kept types, by their short names too, in one
// document or in several.
func TestDiscovery(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	s := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
	if err := s.Describe(boltstore.Description{Scope: boltstore.ScopeNamespaced, Names: []string{"cm", "configmap"},
		Categories: []string{"all"}}); err != nil {
		t.Fatal(err)
	}
	nodes := filetest.Claim(t, db, source1("nodes", "", ""), &corev1.Node{})
	if err := nodes.Describe(boltstore.Description{Scope: boltstore.ScopeCluster, Names: []string{"no"}}); err != nil {
		t.Fatal(err)
	}
	for _, version := range []string{"v1", "v1beta1"} {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: version, Kind: "Widget"})
		filetest.Claim(t, db, boltstore.Source{Group: "example.com", Version: version, Resource: "widgets",
			Form: boltstore.FormUnstructured}, u)
	}
	srv := httptest.NewServer(New(db, Options{}))
	defer srv.Close()
	for _, legacy := range []bool{true, false} {
		dc, err := discovery.NewDiscoveryClientForConfig(&rest.Config{Host: srv.URL})
		if err != nil {
			t.Fatal(err)
		}
		dc.UseLegacyDiscovery = legacy
		groups, err := restmapper.GetAPIGroupResources(dc)
		if err != nil {
			t.Fatal(err)
		}
		if all, ok := restmapper.NewDiscoveryCategoryExpander(dc).Expand("all"); !ok || len(all) != 1 ||
			all[0].Resource != "configmaps" {
			t.Errorf("legacy %v: all means %v", legacy, all)
		}
		mapper := restmapper.NewShortcutExpander(restmapper.NewDiscoveryRESTMapper(groups), dc, nil)
		for arg, want := range map[string]string{"cm": "/v1, Resource=configmaps namespace",
			"nodes": "/v1, Resource=nodes root", "widget": "example.com/v1, Resource=widgets namespace"} {
			gvr, err := mapper.ResourceFor(schema.GroupVersionResource{Resource: arg})
			if err != nil {
				t.Fatalf("legacy %v: %s: %v", legacy, arg, err)
			}
			gvk, err := mapper.KindFor(gvr)
			if err != nil {
				t.Fatal(err)
			}
			m, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
			if err != nil {
				t.Fatal(err)
			}
			if got := gvr.String() + " " + string(m.Scope.Name()); got != want {
				t.Errorf("legacy %v: %s is %s, want %s", legacy, arg, got, want)
			}
		}
	}
}

// TestAge: each answer about objects says how old it is, and warns if it is too old.
func TestAge(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	db := filetest.Open(t, boltstore.Options{Clock: clock, TrustClock: true})
	s := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
	r, err := s.Upstream.BeginRelist(boltstore.RelistOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit("7", clock.Now()); err != nil {
		t.Fatal(err)
	}
	h := New(db, Options{Clock: clock})
	const path = "/api/v1/configmaps"
	if a := expect(t, h, path, 200, ""); a.header.Get("Age") != "0" || a.header.Get("Warning") != "" ||
		a.header.Get(HeaderConfirmed) == "" {
		t.Errorf("fresh: %v", a.header)
	}
	clock.Step(time.Hour + time.Second)
	for _, path := range []string{path, "/api/v1/namespaces/a/configmaps/none"} {
		a := ask(t, h, http.MethodGet, path)
		if a.header.Get("Age") != "3601" || !strings.Contains(a.header.Get("Warning"), "confirmed it 1h ago") {
			t.Errorf("%s after an hour: %v", path, a.header)
		}
	}
	if a := expect(t, New(db, Options{WarnAfter: -1}), path, 200, ""); a.header.Get("Warning") != "" {
		t.Errorf("without warnings: %v", a.header)
	}
	var v struct{ GitVersion string }
	if a := ask(t, h, http.MethodGet, "/version"); json.Unmarshal([]byte(a.body), &v) != nil ||
		!strings.Contains(v.GitVersion, "kubewake") || a.header.Get("Age") != "" {
		t.Errorf("/version: %s", a.body)
	}
}

// TestGivenUp: a request that waits for a version when its server closes breaks off. It is no
// failure of the file, and whoever asked may ask another process.
func TestGivenUp(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	filetest.Relist(t, filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{}), "10",
		configMap("a", "x", 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, path := range []string{"?resourceVersion=99", "/x?resourceVersion=99",
		"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=99"} {
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if recover() != http.ErrAbortHandler {
					t.Errorf("%s: %d %s", path, w.Code, w.Body)
				}
			}()
			New(db, Options{}).ServeHTTP(w,
				httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/v1/namespaces/a/configmaps"+path, nil))
		}()
	}
}
