package serve

import (
	"crypto/x509/pkix"
	"net/http"
	"testing"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// TestImpersonatingProcess: if this process itself counts as somebody else (--as), no caller
// becomes its real user, or gets further groups, by headers of his own.
func TestImpersonatingProcess(t *testing.T) {
	c := newCluster(t)
	cfg := c.config()
	cfg.Impersonate.UserName = "viewer"
	link, err := NewLink(cfg, LinkOptions{Clock: fakeClock()})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: link})
	if a := s.get("/api/v1/pods"); a.code != 200 || c.last().as != "own as viewer " {
		t.Errorf("%d %s %+v", a.code, a.body, c.last())
	}
	before, _ := c.counts()
	for _, header := range []string{"Impersonate-User", "impersonate-group", "Impersonate-Uid",
		"Impersonate-Extra-Scopes"} {
		if a := s.get("/api/v1/pods", header, "system:masters"); !a.has(403, "--as") {
			t.Errorf("%s: %d %s", header, a.code, a.body)
		}
	}
	if after, _ := c.counts(); after != before {
		t.Errorf("%d were passed on", after-before)
	}
	r := s.remote(newAuthority(t))
	ann := []string{"Authorization", "Bearer token-of-ann", "Impersonate-User", "eve"}
	if a := get(t, r.client(nil, pkix.Name{}), r.addr+"/api/v1/pods", ann...); a.code != 200 ||
		c.last().as != "ann" || c.last().header.Get("Impersonate-User") != "eve" {
		t.Errorf("%d %s %+v", a.code, a.body, c.last())
	}
}

// TestConnectionNamesHeaders: a Connection header that names others removes none of them, so
// the server judges the request that came, with its Impersonate- headers. So it is at an API
// server, which looks at Connection for Upgrade only.
func TestConnectionNamesHeaders(t *testing.T) {
	c := newCluster(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{})})
	r := s.remote(newAuthority(t))
	ann := r.client(nil, pkix.Name{})
	ann.Transport.(*http.Transport).ForceAttemptHTTP2 = false // HTTP/2 has no Connection header
	ann.Transport.(*http.Transport).TLSClientConfig.NextProtos = []string{"http/1.1"}
	callers := []struct {
		client   *http.Client
		base, as string
		header   []string
	}{
		{s.socket, local, "own as nobody few", nil},
		{ann, r.addr, "ann", []string{"Authorization", "Bearer token-of-ann"}},
	}
	passed := []string{"Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes",
		"Content-Type"}
	for _, caller := range callers {
		for _, named := range [][]string{
			{"impersonate-user"}, {"Impersonate-Group"}, {"Impersonate-Uid"}, {"Impersonate-Extra-Scopes"},
			{"Authorization"}, {"Content-Type"},
			{"keep-alive, Impersonate-User,Impersonate-Group"}, {"close", "Impersonate-User"},
			{"Upgrade, Impersonate-User"},
		} {
			for _, path := range []string{"/api/v1/namespaces/a/secrets/s", maps} {
				header := append([]string{"Impersonate-User", "nobody", "Impersonate-Group", "few", "Impersonate-Uid",
					"1",
					"Impersonate-Extra-Scopes", "none", "Content-Type", "application/json"}, caller.header...)
				for _, value := range named {
					header = append(header, "Connection", value)
				}
				a := get(t, caller.client, caller.base+path, header...)
				if got := c.last(); a.code != 200 || got.as != caller.as || got.what != "GET "+path {
					t.Errorf("%q: %d %+v", named, a.code, got)
				}
				for _, name := range passed {
					if c.last().header.Get(name) == "" {
						t.Errorf("%q: %s did not arrive", named, name)
					}
				}
			}
		}
	}
}

// TestStreamKeepsImpersonation: the same for a stream both ways, whose Connection header is
// passed on.
func TestStreamKeepsImpersonation(t *testing.T) {
	c := newCluster(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{})})
	conn := s.raw("")
	const exec = "/api/v1/namespaces/a/pods/p/exec"
	if line := upgrade(t, conn, exec, "SPDY/3.1",
		"Connection: Impersonate-User\r\nImpersonate-User: nobody\r\n"); line != "hello\n" {
		t.Errorf("%q", line)
	}
	if got := c.last(); got.as != "own as nobody " {
		t.Errorf("%+v", got)
	}
}

// TestImpersonatedNameThatChanges: HTTP/1.1 drops spaces at both ends of a value. A name that
// would be another one, or none, at the server is refused.
func TestImpersonatedNameThatChanges(t *testing.T) {
	c := newClusterOf(t, false)
	r := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{})}).remote(newAuthority(t))
	ann := r.client(nil, pkix.Name{})
	before, _ := c.counts()
	for _, name := range []string{" ", " nobody", "nobody\t"} {
		a := get(t, ann, r.addr+maps, "Authorization", "Bearer token-of-ann", "Impersonate-User", name)
		if !a.has(400, "Impersonate-User") {
			t.Errorf("%q: %d %s", name, a.code, a.body)
		}
	}
	if after, _ := c.counts(); after != before {
		t.Errorf("%d were passed on: %+v", after-before, c.last())
	}
}
