package live

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/waittest"
)

// silenced is a connection whose other end falls silent at some moment, like a stopped
// process.
type silenced struct {
	net.Conn
	now   *atomic.Bool
	ended <-chan struct{}
}

// Read implements net.Conn.
func (c silenced) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.now.Load() {
		<-c.ended
		return 0, net.ErrClosed
	}
	return n, err
}

// TestStoppedOwner: requests to a stopped owner end, and so do watches there.
func TestStoppedOwner(t *testing.T) {
	path := testPath(t)
	db, _ := world(t, path, 3, 1)
	start(t, db, defaultLimits)
	a := dial(t, path)
	h2 := a.http.HTTP2
	if h2.SendPingTimeout == 0 || h2.SendPingTimeout+h2.PingTimeout > 30*time.Second {
		t.Fatalf("%+v", h2)
	}
	h2.SendPingTimeout, h2.PingTimeout = 50*time.Millisecond, 500*time.Millisecond
	var stopped atomic.Bool
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	connect := a.http.DialContext
	a.http.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := connect(ctx, network, addr)
		return silenced{c, &stopped, ended}, err
	}
	ask := func(query string) (*http.Response, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		t.Cleanup(cancel)
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://x/api/v1/secrets"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a.API(r, apifile.Options{Secrets: true}, false)
	}
	var watch *http.Response
	waittest.Eventually(t, "the owner answers a watch, and pings in time", func() bool {
		var err error
		watch, err = ask("?watch=1")
		return err == nil
	})
	defer watch.Body.Close()
	stopped.Store(true)
	if _, err := io.ReadAll(watch.Body); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a watch: %v", err)
	}
	if resp, err := ask(""); !errors.Is(err, ErrNoOwner) {
		t.Errorf("a list: %v, %v", resp, err)
	}
}

// TestSuspendedClients: clients that are suspended while they watch lose their connections
// to others. A watch whose client answers pings stays.
func TestSuspendedClients(t *testing.T) {
	path := testPath(t)
	db, s := world(t, path, 3, 1)
	l := slowToRead()
	l.write = time.Second // a busy machine answers pings, and accepts answers, later
	start(t, db, l)
	var suspended atomic.Bool
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	watch := func(c func(net.Conn) net.Conn) *http.Response {
		a := dial(t, path)
		connect := a.http.DialContext
		a.http.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := connect(ctx, network, addr)
			return c(conn), err
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/api/v1/secrets?watch=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := a.API(r, apifile.Options{Secrets: true}, false)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp
	}
	stays := watch(func(c net.Conn) net.Conn { return c })
	for range l.conns - 2 { // one is left to make clients by
		watch(func(c net.Conn) net.Conn { return silenced{c, &suspended, ended} })
	}
	suspended.Store(true)
	var all []*http.Response
	for range l.conns - 2 {
		all = append(all, watch(func(c net.Conn) net.Conn { return c }))
	}
	relist(t, s, 2, 1, "200")
	for _, resp := range append(all, stays) {
		if !strings.Contains(events(t, resp.Body), `"DELETED"`) {
			t.Error("a watch has ended")
		}
	}
}

// events reads a watch until a delete.
func events(t *testing.T, r io.Reader) string {
	t.Helper()
	var all strings.Builder
	lines := bufio.NewScanner(r)
	for !strings.Contains(all.String(), `"DELETED"`) && lines.Scan() {
		all.Write(lines.Bytes())
	}
	return all.String()
}
