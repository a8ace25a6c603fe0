package serve

import (
	"crypto/x509/pkix"
	"net/http"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// TestPublicPaths: as at a server, health and version need no credentials. A wrong token is
// refused all the same, and other paths are.
func TestPublicPaths(t *testing.T) {
	c := newCluster(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{Offline: time.Hour})})
	r := s.remote(newAuthority(t))
	anybody := r.client(nil, pkix.Name{})
	for path, code := range map[string]int{
		"/healthz": 200, "/livez": 200, "/readyz": 200, "/version": 200, "/version/": 200,
		"/api": 401, "/metrics": 401, "/readyz/ping": 401, maps: 401,
	} {
		if a := get(t, anybody, r.addr+path); a.code != code {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
		if a := get(t, anybody, r.addr+path, "Authorization", "Bearer guess"); a.code != 401 {
			t.Errorf("%s with a wrong token: %d %s", path, a.code, a.body)
		}
	}
	if a := send(t, anybody, http.MethodPost, r.addr+"/version", nil); a.code != 401 {
		t.Errorf("POST: %d %s", a.code, a.body)
	}
	if passed, _ := c.counts(); passed > 0 {
		t.Errorf("%d requests of strangers were passed on", passed)
	}
}

// TestHealthOffline: the file answers reads, so its API is ready, whether or not there could
// be a link.
func TestHealthOffline(t *testing.T) {
	c := newCluster(t)
	with := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{Offline: time.Hour})})
	without := start(t, Options{File: fileOf(t, apifile.Options{})})
	c.Close()
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		for name, s := range map[string]*served{"with a link": with, "without": without} {
			if a := s.get(path); a.code != 200 || a.body != "ok" {
				t.Errorf("%s, %s: %d %s", path, name, a.code, a.body)
			}
		}
	}
}
