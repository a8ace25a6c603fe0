package serve

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/filetest"
)

// blocking is a file whose answers block.
type blocking struct{ begun, end chan struct{} }

// ServeFile implements File.
func (b *blocking) ServeFile(w http.ResponseWriter, r *http.Request, _ http.Handler) {
	b.begun <- struct{}{}
	select {
	case <-b.end:
	case <-r.Context().Done():
	}
}

// TestLimits: requests and watches beyond their limits get 429, apart from each other. A
// place is free again after its request. Large headers are refused.
func TestLimits(t *testing.T) {
	b := &blocking{make(chan struct{}), make(chan struct{})}
	s := start(t, Options{File: b, Limits: Limits{Requests: 2, Watches: 1, Header: 8 << 10}})
	done := make(chan int, 3)
	for _, path := range []string{maps, maps + "/x", maps + "?watch=true"} {
		go func() { done <- s.get(path).code }()
		<-b.begun
	}
	for _, path := range []string{maps, "/apis", maps + "?watch=1", maps + "/x/exec"} {
		if a := s.get(path); !a.has(429, "TooManyRequests") || a.header.Get("Retry-After") != "1" {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	close(b.end)
	for range 3 {
		if code := <-done; code != 200 {
			t.Errorf("code %d", code)
		}
	}
	go func() { done <- s.get(maps).code }()
	<-b.begun
	if code := <-done; code != 200 {
		t.Errorf("a free place: %d", code)
	}
	if a := s.get(maps, "X-Large", strings.Repeat("x", 20<<10)); a.code != 431 {
		t.Errorf("a large header: %d", a.code)
	}
}

// TestConnections: more connections wait until one of those with requests ends.
func TestConnections(t *testing.T) {
	b := &blocking{make(chan struct{}), make(chan struct{})}
	s := start(t, Options{File: b, Limits: Limits{Connections: 1}})
	first := s.raw("GET " + maps + " HTTP/1.1\r\nHost: x\r\n\r\n")
	<-b.begun // it has the place
	answered := make(chan said, 1)
	go func() { answered <- s.get(maps) }()
	select {
	case a := <-answered:
		t.Errorf("a second connection got %d", a.code)
	case <-time.After(50 * time.Millisecond): // long enough to be answered
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	<-b.begun
	close(b.end)
	if a := <-answered; a.code != 200 {
		t.Errorf("%d %s", a.code, a.body)
	}
}

// TestStalled: a client that does not read a long answer loses its connection, and its
// place becomes free.
func TestStalled(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	store := filetest.Claim(t, db, filetest.Source("configmaps"), &corev1.ConfigMap{})
	filetest.Relist(t, store, "10")
	s := start(t, Options{File: Own(db, apifile.Options{}), Limits: Limits{Watches: 1, Stall: 100 * time.Millisecond}})
	watch(t, s)
	q := feed(t, store)
	large := strings.Repeat("x", 100<<10)
	for i := range 100 {
		if err := q.Update(&corev1.ConfigMap{ObjectMeta: object("a", "x", 11+i),
			Data: map[string]string{"k": large}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	deadline := time.Now().Add(time.Minute)
	for {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, local+maps+"?watch=true&resourceVersion=110", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := s.socket.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // only the code counts
		cancel()
		if resp.StatusCode == 200 {
			return
		}
		if resp.StatusCode != 429 || time.Now().After(deadline) {
			t.Fatalf("code %d", resp.StatusCode)
		}
	}
}

// watch begins a watch over a connection of its own, and returns it once it is answered.
func watch(t *testing.T, s *served) *bufio.Reader {
	t.Helper()
	return watchOf(t, s, "resourceVersion=10")
}

func watchOf(t *testing.T, s *served, query string) *bufio.Reader {
	t.Helper()
	conn, err := net.Dial("unix", filepath.Join(s.dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() }) // the server may have closed it
	if _, err := io.WriteString(conn,
		"GET /api/v1/configmaps?watch=true&"+query+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	return bufio.NewReader(resp.Body)
}
