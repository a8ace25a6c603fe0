package serve

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// stray fails requests as a connection does whose last caller left after it was given on.
type stray struct {
	http.RoundTripper
	left atomic.Int32
}

func (s *stray) RoundTrip(r *http.Request) (*http.Response, error) {
	if s.left.Add(-1) >= 0 {
		return nil, context.Canceled
	}
	return s.RoundTripper.RoundTrip(r)
}

// TestStrayCancel: that another caller left fails no read. A request that may change something
// is not sent again.
func TestStrayCancel(t *testing.T) {
	// the caller may have left; it sees what fails
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	l := linkTo(t, server, LinkOptions{})
	wire := &stray{RoundTripper: l.own.any}
	l.own = wires{wire, wire}
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: l})
	const path = "/api/v1/namespaces/a/services/s:80/proxy/"
	stream := []string{"Connection", "Upgrade", "Upgrade", "websocket"}
	for _, c := range []struct {
		method string
		header []string
		strays int32
		want   int
	}{
		{http.MethodGet, nil, 1, 200}, {http.MethodHead, nil, 2, 200}, {http.MethodGet, nil, 3, 503},
		{http.MethodPost, nil, 1, 503}, {http.MethodGet, stream, 1, 503},
	} {
		wire.left.Store(c.strays)
		if got := send(t, s.socket, c.method, local+path, strings.NewReader(""), c.header...); got.code != c.want {
			t.Errorf("%s %q after %d others left: %d %s", c.method, c.header, c.strays, got.code, got.body)
		}
		if left := wire.left.Load(); (c.method == http.MethodPost || c.header != nil) && left != 0 {
			t.Errorf("%s %q was sent %d times", c.method, c.header, 1-left)
		}
	}
}
