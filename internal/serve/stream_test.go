package serve

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/waittest"
)

// TestSilentStream: a stream of which one side has ended, while the other one neither ends
// nor sends anything, gives its place back.
func TestSilentStream(t *testing.T) {
	for _, tc := range []struct {
		name    string
		secure  bool
		server  bool                 // it ends its side
		clients func(net.Conn) error // ends the client's side
	}{
		{"the client leaves", false, false, net.Conn.Close},
		{"the client leaves, over TLS", true, false, net.Conn.Close},
		{"the client has sent everything", false, false, func(c net.Conn) error {
			return c.(*net.UnixConn).CloseWrite()
		}},
		{"the client has sent everything, over TLS", true, false, func(c net.Conn) error {
			return c.(*tls.Conn).CloseWrite()
		}},
		{"the server ends", false, true, nil},
		{"the server ends, over TLS", true, true, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				conn, _ := upgraded(w, r)
				defer conn.Close()
				if !tc.server {
					<-over
				}
			}))
			defer server.Close()
			defer close(over)
			s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: linkTo(t, server, LinkOptions{}),
				Limits: Limits{Stall: 100 * time.Millisecond}})
			at, ca, err := s.Loopback("127.0.0.1:0", "token")
			if err != nil {
				t.Fatal(err)
			}
			var conn net.Conn
			if tc.secure {
				pool := x509.NewCertPool()
				pool.AppendCertsFromPEM(ca)
				conn, err = tls.Dial("tcp", at.String(),
					&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
			} else {
				conn, err = net.Dial("unix", filepath.Join(s.dir, "s"))
			}
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn,
				"GET /api/v1/namespaces/a/pods/p/exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+
					"token\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatal(resp, err)
			}
			if tc.clients != nil {
				if err := tc.clients(conn); err != nil {
					t.Fatal(err)
				}
			}
			waittest.Eventually(t, "its place is taken", func() bool {
				for _, srv := range s.servers {
					if srv.Handler.(*limited).long.taken() > 0 {
						return false
					}
				}
				return true
			})
		})
	}
}

// upgraded is the server's end of a stream that a request begins.
func upgraded(w http.ResponseWriter, r *http.Request) (net.Conn, *bufio.ReadWriter) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err) // the test's client gets no stream
	}
	// the test sees it missing
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
		r.Header.Get("Upgrade"))
	return conn, buf
}
