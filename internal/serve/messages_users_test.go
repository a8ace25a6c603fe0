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
	"time"

	"golang.org/x/net/websocket"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// TestPageOfAnotherOrigin: a browser sends a client certificate for any page. A page of another
// origin gets no WebSocket by it, neither from the file nor at the server. A token is no such thing.
func TestPageOfAnotherOrigin(t *testing.T) {
	c := newCluster(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{})})
	ours := newAuthority(t)
	r := s.remote(ours)
	addr := strings.TrimPrefix(r.addr, "https://")
	for _, tc := range []struct {
		origin      string
		token       bool
		watch, exec int
	}{
		{"https://" + addr, false, 101, 101},
		{"https://evil.example", false, 403, 403},
		{"https://127.0.0.1:1", false, 403, 403},
		{"null", false, 403, 403},
		{"https://evil.example", true, 101, 101},
		{"", false, 403, 101}, // no browser
	} {
		client, credentials := r.client(ours, pkix.Name{CommonName: "bob"}), ""
		if tc.token {
			client, credentials = r.client(nil, pkix.Name{}), "Authorization: Bearer token-of-ann\r\n"
		}
		cfg := client.Transport.(*http.Transport).TLSClientConfig
		cfg.NextProtos = []string{"http/1.1"}
		for path, want := range map[string]int{
			"/api/v1/configmaps?watch=true": tc.watch, "/api/v1/namespaces/a/pods/p/exec?command=sh": tc.exec,
		} {
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
			if err = errors.Join(err, rerr); err != nil || resp.StatusCode != want {
				t.Errorf("%q, token %v: %s: %v %v, want %d", tc.origin, tc.token, path, resp, err, want)
			}
			_ = conn.Close() // it has done its work
		}
	}
}

// TestMessagesAreReviewed: another user's watch over WebSocket is for whom may watch, and ends
// once the right was taken away.
func TestMessagesAreReviewed(t *testing.T) {
	c := newCluster(t)
	clock := fakeClock()
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{Clock: clock})})
	r := s.remote(newAuthority(t))
	cfg := r.client(nil, pkix.Name{}).Transport.(*http.Transport).TLSClientConfig
	cfg.NextProtos = []string{"http/1.1"}
	begin := func() (*bufio.Reader, int) {
		t.Helper()
		conn, err := tls.Dial("tcp", strings.TrimPrefix(r.addr, "https://"), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() }) // the server may have closed it
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		_, err = fmt.Fprintf(conn, "GET /api/v1/configmaps?watch=true&resourceVersion=10 HTTP/1.1\r\n%s"+
			"Authorization: Bearer token-of-ann\r\n\r\n", socketHeader)
		resp, rerr := http.ReadResponse(in, nil)
		if err = errors.Join(err, rerr); err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // only the code counts
		return in, resp.StatusCode
	}
	in, code := begin()
	if code != http.StatusSwitchingProtocols {
		t.Fatal(code)
	}
	c.mu.Lock()
	c.may = func(authorizationv1.SubjectAccessReviewSpec) bool { return false }
	c.mu.Unlock()
	clock.Step(time.Hour)
	if kinds, text := frames(t, in); kinds[0] != 0x80|websocket.CloseFrame || text != "\x03\xe8" {
		t.Errorf("%x %q", kinds, text)
	}
	if _, code := begin(); code != http.StatusForbidden {
		t.Errorf("a new one: %d", code)
	}
}
