package serve

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// FuzzRights: whatever a user asks who may read the config maps of namespace a, the
// answer has no other object of the file.
func FuzzRights(f *testing.F) {
	c := newCluster(f)
	c.may = func(s authorizationv1.SubjectAccessReviewSpec) bool {
		a := s.ResourceAttributes
		return a.Resource == "configmaps" && a.Namespace == "a" && a.Subresource == ""
	}
	s := New(Options{File: fileOf(f, apifile.Options{Secrets: true}), Link: c.link(f, LinkOptions{Offline: time.Hour})})
	f.Cleanup(func() {
		if err := s.Close(); err != nil {
			f.Error(err)
		}
	})
	for _, path := range []string{
		"/api/v1/namespaces/a/configmaps", "/api/v1/namespaces/b/configmaps/y",
		"/api/v1/configmaps?fieldSelector=metadata.namespace%3Da",
		"/api/v1/namespaces//configmaps", "/api//v1/configmaps", "/api/v1/namespaces/a/configmaps/../../b/configmaps",
		"/api/v1/namespaces/a/secrets/s/status",
		"/api/v1/namespaces/a%2Fconfigmaps%2Fx", "/api/v1/namespaces/a/configmaps?watch=1&resourceVersion=0",
		"/api/v1/namespaces/a/configmaps/x/status",
		"/api/v1/watch/configmaps", "/api/v1/namespaces/status/configmaps",
		"/api/v1/namespaces/a/configmaps?continue=b%2Fy&limit=1", "/apis//v1/configmaps",
	} {
		for _, header := range []string{"", "Impersonate-User: root", "Accept: text/html", "Connection: Upgrade"} {
			f.Add("GET", path, header)
		}
	}
	f.Fuzz(func(t *testing.T, method, path, header string) {
		u, err := url.ParseRequestURI(path)
		if err != nil || u.Path == "" {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // ends watches
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
		r.Method, r.URL = method, u
		if name, value, ok := strings.Cut(header, ": "); ok {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		func() {
			defer func() {
				if p := recover(); p != nil && p != http.ErrAbortHandler {
					panic(p)
				}
			}()
			s.route(w, withCaller(r, &caller{user: authenticationv1.UserInfo{Username: "ann"}, token: "token-of-ann",
				waiting: newPlaces(100)}))
		}()
		for _, secret := range []string{"by", "as"} { // the UIDs of b/y and of Secret a/s
			for _, form := range []string{`"uid":"` + secret + `"`, "uid: " + secret + "\n"} {
				if strings.Contains(w.Body.String(), form) {
					t.Errorf("%s %s: %s", method, path, w.Body.String())
				}
			}
		}
	})
}
