package live

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/apifile"
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
	a := dial(t, path).API(apifile.Options{Secrets: true})
	t.Cleanup(a.Close)
	h2 := a.t.HTTP2
	if h2.SendPingTimeout == 0 || h2.SendPingTimeout+h2.PingTimeout > 30*time.Second {
		t.Fatalf("%+v", h2)
	}
	h2.SendPingTimeout, h2.PingTimeout = 50*time.Millisecond, 500*time.Millisecond
	var stopped atomic.Bool
	ended := make(chan struct{})
	t.Cleanup(func() { close(ended) })
	connect := a.t.DialContext
	a.t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
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
		return a.Do(r, false)
	}
	watch, err := ask("?watch=1")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Body.Close()
	stopped.Store(true)
	if _, err := io.ReadAll(watch.Body); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a watch: %v", err)
	}
	if resp, err := ask(""); !errors.Is(err, ErrNoOwner) {
		t.Errorf("a list: %v, %v", resp, err)
	}
}
