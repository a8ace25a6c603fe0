package serve

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// raw opens a connection to the socket and sends the beginning of a request.
func (s *served) raw(begin string) net.Conn {
	s.t.Helper()
	conn, err := net.Dial("unix", filepath.Join(s.dir, "s"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() }) // the server may have closed it
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	if _, err := io.WriteString(conn, begin); err != nil {
		s.t.Fatal(err)
	}
	return conn
}

// startSlow is start, where bodies have the given time to come. The headers have longer.
func startSlow(t *testing.T, o Options, body time.Duration) *served {
	t.Helper()
	s := start(t, o)
	s.servers[0].Handler.(*limited).Send = body
	return s
}

// TestBodyThatDoesNotCome: a client that announces a body and does not send it loses the
// connection in time, even if the body is not needed: for a read, for a refused request,
// and for one that finds no place.
func TestBodyThatDoesNotCome(t *testing.T) {
	const body = 100 * time.Millisecond
	limits := Limits{Requests: 1}
	file := fileOf(t, apifile.Options{})
	full := &blocking{make(chan struct{}), make(chan struct{})}
	busy := startSlow(t, Options{File: full, Limits: limits}, body)
	end := make(chan int)
	go func() { end <- busy.get(maps).code }()
	<-full.begun
	for _, tc := range []struct {
		name, method string
		s            *served
		more         string
	}{
		{"a read", "GET", startSlow(t, Options{File: file, Limits: limits}, body), ""},
		{"a write without a link", "POST", startSlow(t, Options{File: file, Limits: limits}, body), ""},
		{"a write", "POST", startSlow(t,
			Options{File: file, Limits: limits, Link: newCluster(t).link(t, LinkOptions{})}, body), ""},
		{"a stream", "POST", startSlow(t,
			Options{File: file, Limits: limits, Link: newCluster(t).link(t, LinkOptions{})}, body), "Upgrade: x\r\n"},
		{"no place", "POST", busy, ""},
	} {
		for _, size := range []string{"Content-Length: 1000", "Transfer-Encoding: chunked"} {
			conn := tc.s.raw(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\n%s%s\r\n\r\n", tc.method, maps, tc.more, size))
			if got, err := io.ReadAll(conn); err != nil {
				t.Errorf("%s, %s: %.100q, %v", tc.name, size, got, err)
			}
		}
	}
	close(full.end)
	if code := <-end; code != 200 {
		t.Errorf("code %d", code)
	}
}

// TestBodyThenWait: an answer may take longer than the body has time to come.
func TestBodyThenWait(t *testing.T) {
	b := &blocking{make(chan struct{}), make(chan struct{})}
	s := startSlow(t, Options{File: b, Limits: Limits{Requests: 1}}, 50*time.Millisecond)
	done := make(chan int)
	go func() { done <- send(t, s.socket, "GET", local+maps, strings.NewReader("a body")).code }()
	<-b.begun
	// A later body that found no place and does not come has timed out.
	if _, err := io.ReadAll(s.raw("POST " + maps +
		" HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	close(b.end)
	if code := <-done; code != 200 {
		t.Errorf("code %d", code)
	}
}

// TestUpgradeInName: an Upgrade header does not lift the bounds of a body if the
// connection is not upgraded.
func TestUpgradeInName(t *testing.T) {
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: newCluster(t).link(t, LinkOptions{})})
	large := io.LimitReader(zeros{}, DefaultLimits.Body+1)
	if a := send(t, s.socket, "POST", local+maps, large, "Upgrade", "x"); a.code != 413 {
		t.Errorf("a large body: %d %s", a.code, a.body)
	}
}
