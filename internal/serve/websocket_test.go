package serve

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// TestTokenOfBrowser: a browser has its token among the protocols of a WebSocket, since it
// cannot set a header. The token is no protocol at the server.
func TestTokenOfBrowser(t *testing.T) {
	c := newCluster(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{})})
	ours := newAuthority(t)
	r := s.remote(ours)
	at, ca, err := s.Loopback("127.0.0.1:0", "own-token")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	over := func(addr string, cfg *tls.Config) func() (net.Conn, error) {
		cfg.NextProtos = []string{"http/1.1"}
		return func() (net.Conn, error) { return tls.Dial("tcp", addr, cfg) }
	}
	configOf := func(c *http.Client) *tls.Config { return c.Transport.(*http.Transport).TLSClientConfig }
	remote := over(strings.TrimPrefix(r.addr, "https://"), configOf(r.client(nil, pkix.Name{})))
	certified := over(strings.TrimPrefix(r.addr, "https://"), configOf(r.client(ours, pkix.Name{CommonName: "bob"})))
	loopback := over(at.String(), &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
	socket := func() (net.Conn, error) { return net.Dial("unix", filepath.Join(s.dir, "s")) }
	token := func(text string) string {
		return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(text))
	}
	const other = "v4.channel.k8s.io"
	for _, tc := range []struct {
		name      string
		dial      func() (net.Conn, error)
		protocols string // as header lines
		as        string // "" is refused
	}{
		{"a token", remote, other + ", " + token("token-of-ann"), "ann"},
		{"a token, in a line of its own", remote, token("token-of-ann") + "\r\nSec-WebSocket-Protocol: " + other,
			"ann"},
		{"another token", remote, other + "," + token("guess"), ""},
		{"no other protocol", remote, token("token-of-ann"), ""},
		{"two tokens", remote, other + "," + token("token-of-ann") + "," + token("token-of-ann"), ""},
		{"not base64", remote, other + ",base64url.bearer.authorization.k8s.io.%", ""},
		{"a header counts first", remote, other + "," + token("guess") + "\r\nAuthorization: Bearer token-of-ann",
			"ann"},
		{"the token of the kubeconfig", loopback, other + "," + token("own-token"), "own"},
		{"another token at the loopback address", loopback, other + "," + token("token-of-ann"), ""},
		{"at the socket", socket, other + "," + token("token-of-ann"), "own"},
		{"with a certificate", certified, other + "," + token("token-of-ann"), "own as bob "},
	} {
		conn, err := tc.dial()
		if err != nil {
			t.Fatal(err)
		}
		before, _ := c.counts()
		line := upgrade(t, conn, "/api/v1/namespaces/a/pods/p/exec?command=sh", "websocket",
			"Sec-WebSocket-Protocol: "+tc.protocols+"\r\n")
		_ = conn.Close() // it has done its work
		after, _ := c.counts()
		if tc.as == "" {
			if after != before || !strings.HasPrefix(line, "401") {
				t.Errorf("%s: %q", tc.name, line)
			}
			continue
		}
		got := c.last()
		if line != "hello\n" || after != before+1 || got.as != tc.as ||
			strings.Join(got.header.Values("Sec-Websocket-Protocol"), ",") != other {
			t.Errorf("%s: %q as %s: %q", tc.name, line, got.as, got.header.Values("Sec-Websocket-Protocol"))
		}
	}
}
