package serve

import (
	"crypto/x509/pkix"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// TestOldWatchPaths: the server itself authorises a watch at an old path, where "watch" is no
// resource.
func TestOldWatchPaths(t *testing.T) {
	c := newCluster(t)
	c.may = func(s authorizationv1.SubjectAccessReviewSpec) bool {
		return s.ResourceAttributes.Resource == "configmaps"
	}
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{Offline: time.Hour})})
	r := s.remote(newAuthority(t))
	for _, path := range []string{"/api/v1/watch/configmaps", "/api/v1/watch/namespaces/a/configmaps/x",
		"/apis/apps/v1/watch/deployments"} {
		a := get(t, r.client(nil, pkix.Name{}), r.addr+path, "Authorization", "Bearer token-of-ann")
		if !a.has(200, path) || c.last().as != "ann" {
			t.Errorf("%s: %d %s, as %s", path, a.code, a.body, c.last().as)
		}
	}
}

// TestOddUpgrade: an Upgrade header that no protocol has is the client's fault.
func TestOddUpgrade(t *testing.T) {
	c := newCluster(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{})})
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		a := send(t, s.socket, method, local+maps+"/x", nil, "Connection", "Upgrade", "Upgrade", "spdÿ")
		if !a.has(400, "Upgrade") {
			t.Errorf("%s: %d %s", method, a.code, a.body)
		}
	}
}

// TestPanicIsSaid: a request that fails by a panic is reported, with its stack. One that breaks
// off is not.
func TestPanicIsSaid(t *testing.T) {
	for _, tc := range []struct {
		value any
		says  string
	}{{http.ErrAbortHandler, ""}, {"a bug", "route_test.go"}} {
		said := make(chan string, 1)
		s := start(t, Options{File: fileFunc(func() {
			panic(tc.value)
		}), Failed: func(err error) { said <- err.Error() }})
		if a := s.get(maps); a.code != 0 {
			t.Errorf("%v: %d %s", tc.value, a.code, a.body)
		}
		if err := s.Close(); err != nil { // after all that is said
			t.Fatal(err)
		}
		close(said)
		if text := <-said; (text == "") != (tc.says == "") || !strings.Contains(text, tc.says) {
			t.Errorf("%v: %q", tc.value, text)
		}
	}
}

// fileFunc answers by what the function does.
type fileFunc func()

// ServeFile implements File.
func (f fileFunc) ServeFile(http.ResponseWriter, *http.Request, http.Handler) { f() }

// TestTargetIsNoPath: a request whose target has no path gets no further. The server behind, or
// the file's owner, would take what follows the scheme for one that nobody has judged.
func TestTargetIsNoPath(t *testing.T) {
	db := filled(t)
	states, err := db.Sources()
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t)
	shared := sharedOf(t, db)
	alone := start(t, Options{File: shared})
	linked := start(t, Options{File: shared, Link: c.link(t, LinkOptions{})})
	for _, to := range []string{"x:http://kubewake/kubewake/snapshot", "x:http://kubewake/kubewake/status",
		"x:http://kubewake/api/v1/secrets", "x:y"} {
		for name, s := range map[string]*served{"alone": alone, "linked": linked} {
			got, err := io.ReadAll(s.raw("GET " + to + " HTTP/1.1\r\nHost: kubewake\r\nConnection: close\r\n\r\n"))
			if answer := string(got); err != nil || !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
				t.Errorf("%s, %s: %.200q %v", to, name, answer, err)
			}
		}
	}
	for _, st := range states {
		to := "x:http://kubewake/v1/objects?secrets=true&source=" + st.Source.ID()
		got, err := io.ReadAll(alone.raw("GET " + to + " HTTP/1.1\r\nHost: kubewake\r\nConnection: close\r\n\r\n"))
		if err != nil || strings.Contains(string(got), `"metadata":{"name"`) {
			t.Errorf("%s: %.300q %v", st.Source, got, err)
		}
	}
	if passed, _ := c.counts(); passed > 0 {
		t.Errorf("%d requests were passed on", passed)
	}
}
