package serve

import (
	"bufio"
	"crypto/tls"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

const socketHeader = "Host: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
	"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nOrigin: https://x\r\n"

// TestPageOfAnotherOrigin: a browser sends a client certificate for any page. A page of another
// origin gets no WebSocket by it. A token is no such thing.
func TestPageOfAnotherOrigin(t *testing.T) {
	c := newCluster(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{})})
	ours := newAuthority(t)
	r := s.remote(ours)
	addr := strings.TrimPrefix(r.addr, "https://")
	for _, tc := range []struct {
		origin string
		token  bool
		want   int
	}{
		{"https://" + addr, false, 101},
		{"https://evil.example", false, 403},
		{"https://127.0.0.1:1", false, 403},
		{"null", false, 403},
		{"https://evil.example", true, 101},
		{"", false, 101}, // no browser
	} {
		client, credentials := r.client(ours, pkix.Name{CommonName: "bob"}), ""
		if tc.token {
			client, credentials = r.client(nil, pkix.Name{}), "Authorization: Bearer token-of-ann\r\n"
		}
		cfg := client.Transport.(*http.Transport).TLSClientConfig
		cfg.NextProtos = []string{"http/1.1"}
		for _, path := range []string{"/api/v1/configmaps?watch=true", "/api/v1/namespaces/a/pods/p/exec?command=sh"} {
			conn, err := tls.Dial("tcp", addr, cfg)
			if err != nil {
				t.Fatal(err)
			}
			own := strings.NewReplacer("Host: x", "Host: "+addr, "Origin: https://x", "Origin: "+tc.origin)
			header := own.Replace(socketHeader)
			if tc.origin == "" {
				header = strings.Replace(socketHeader, "Origin: https://x\r\n", "", 1)
			}
			_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\n%s%s\r\n", path, header, credentials)
			resp, rerr := http.ReadResponse(bufio.NewReader(conn), nil)
			if err = errors.Join(err, rerr); err != nil || resp.StatusCode != tc.want {
				t.Errorf("%q, token %v: %s: %v %v, want %d", tc.origin, tc.token, path, resp, err, tc.want)
			}
			_ = conn.Close() // it has done its work
		}
	}
}
