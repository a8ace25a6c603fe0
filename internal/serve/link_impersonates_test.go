package serve

import (
	"crypto/x509/pkix"
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
	for _, header := range []string{"Impersonate-User", "impersonate-group", "Impersonate-Uid", "Impersonate-Extra-Scopes"} {
		if a := s.get("/api/v1/pods", header, "system:masters"); !a.has(403, "--as") {
			t.Errorf("%s: %d %s", header, a.code, a.body)
		}
	}
	if after, _ := c.counts(); after != before {
		t.Errorf("%d were passed on", after-before)
	}
	r := s.remote(newAuthority(t))
	ann := []string{"Authorization", "Bearer token-of-ann", "Impersonate-User", "eve"}
	if a := get(t, r.client(nil, pkix.Name{}), r.addr+"/api/v1/pods", ann...); a.code != 200 || c.last().as != "ann" || c.last().header.Get("Impersonate-User") != "eve" {
		t.Errorf("%d %s %+v", a.code, a.body, c.last())
	}
}
