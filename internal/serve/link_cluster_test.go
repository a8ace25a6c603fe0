package serve

import (
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// TestAnotherCluster: nothing is passed on to the server of another cluster than the
// file's, and its answers about rights are not trusted. A server that does not say which
// cluster it is, is trusted.
func TestAnotherCluster(t *testing.T) {
	c := newCluster(t)
	ours := newAuthority(t)
	for _, tc := range []struct {
		want, is  string
		code, ask int // of writes, and of reads of somebody else
	}{
		{"one", "one", 200, 200}, {"one", "two", 503, 403}, {"", "two", 200, 200}, {"one", "", 200, 200},
	} {
		c.mu.Lock()
		c.system = tc.is
		c.mu.Unlock()
		s := start(t, Options{File: fileOf(t, apifile.Options{}),
			Link: c.link(t, LinkOptions{Clusters: is(tc.want), Offline: time.Hour})})
		bob := s.remote(ours)
		a := send(t, s.socket, "POST", local+maps, nil)
		if b := get(t, bob.client(ours, pkix.Name{CommonName: "bob"}), bob.addr+maps); a.code != tc.code ||
			b.code != tc.ask {
			t.Errorf("%+v: %d %s, %d %s", tc, a.code, a.body, b.code, b.body)
		}
		if tc.code == 503 && !strings.Contains(a.body, "another cluster than the file") {
			t.Errorf("%s", a.body)
		}
		if a := s.get(maps); a.code != 200 {
			t.Errorf("%+v: this user reads %d %s", tc, a.code, a.body)
		}
	}
}
