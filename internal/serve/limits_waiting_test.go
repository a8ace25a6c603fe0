package serve

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// hold tells asked of a request, and keeps it until over is closed. If the server broke its
// connections instead, net/http would send reads again.
func hold(r *http.Request, asked chan<- struct{}, over <-chan struct{}) {
	select {
	case asked <- struct{}{}:
	case <-over:
		return
	}
	select {
	case <-r.Context().Done():
	case <-over:
	}
}

// TestServerHolds: requests that the server does not answer leave room for those that the
// file answers.
func TestServerHolds(t *testing.T) {
	asked, over := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		hold(r, asked, over)
	}))
	defer server.Close()
	l := Limits{Requests: 4, Watches: 4}
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: linkTo(t, server, LinkOptions{}), Limits: l})
	for range l.Requests / 2 {
		go s.get("/api/v1/pods")
		<-asked
	}
	if a := s.get("/api/v1/pods"); a.code != 429 || a.header.Get("Retry-After") != "1" {
		t.Errorf("one too many: %d %s", a.code, a.body)
	}
	if a := s.get(maps); a.code != 200 {
		t.Errorf("the file: %d %s", a.code, a.body)
	}
	for range l.Watches {
		go s.get("/api/v1/pods?watch=true")
		<-asked
	}
	close(over)
}

// TestServerHoldsDocuments: documents of discovery, and questions about rights, also wait for
// the server. They have no places of their own.
func TestServerHoldsDocuments(t *testing.T) {
	asked, over := make(chan struct{}, 20), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // only then net/http sees the caller leave
		hold(r, asked, over)
	}))
	defer server.Close()
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: linkTo(t, server, LinkOptions{}),
		Limits: Limits{Requests: 6}})
	s.inTime = within(time.Hour) // they wait while the test looks
	review := func() said {
		return send(t, s.socket, http.MethodPost, local+selfReviewPath,
			strings.NewReader(mayI(t, "list", "/configmaps", "a")), "Content-Type", "application/json")
	}
	var under sync.WaitGroup
	for _, send := range []func() said{
		review, func() said { return s.get("/apis") }, func() said { return s.get("/version") },
	} {
		under.Go(func() { send() })
		<-asked
	}
	answers := map[string]said{"rights": review(), "a pod": s.get("/api/v1/pods")}
	for _, path := range []string{"/api", "/apis", "/api/v1", "/version"} {
		answers[path] = s.get(path)
	}
	for what, a := range answers {
		if a.code != 429 || a.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %d %s", what, a.code, a.body)
		}
	}
	if a := s.get(maps); a.code != 200 {
		t.Errorf("the file: %d %s", a.code, a.body)
	}
	close(over)
	under.Wait()
}

// TestHalfClosedStream: a client that has sent everything still gets the rest of the answer.
func TestHalfClosedStream(t *testing.T) {
	for _, secure := range []bool{false, true} {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, buf := upgraded(w, r)
			defer conn.Close()
			got, err := io.ReadAll(buf)
			_, _ = fmt.Fprintf(conn, "got %q %v", got, err) // likewise
		}))
		if secure {
			server.StartTLS()
		} else {
			server.Start()
		}
		t.Cleanup(server.Close)
		s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: linkTo(t, server, LinkOptions{})})
		conn, err := net.Dial("unix", filepath.Join(s.dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprint(conn, "GET /api/v1/namespaces/a/pods/p/exec HTTP/1.1\r\nHost: "+
			"kubewake\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		resp, err := http.ReadResponse(in, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(resp, err)
		}
		if _, err := io.WriteString(conn, "all"); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.UnixConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(in); err != nil || string(rest) != `got "all" <nil>` {
			t.Errorf("over TLS %v: %q %v", secure, rest, err)
		}
	}
}
