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
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer server.Close()
	l := linkTo(t, server, LinkOptions{})
	wire := &stray{RoundTripper: l.own.any}
	l.own.any = wire
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: l})
	const path = "/api/v1/namespaces/a/services/s:80/proxy/"
	for _, c := range []struct {
		method string
		strays int32
		want   int
	}{
		{http.MethodGet, 1, 200}, {http.MethodHead, 2, 200}, {http.MethodGet, 3, 503}, {http.MethodPost, 1, 503},
	} {
		wire.left.Store(c.strays)
		if got := send(t, s.socket, c.method, local+path, strings.NewReader("")); got.code != c.want {
			t.Errorf("%s after %d others left: %d %s", c.method, c.strays, got.code, got.body)
		}
		if left := wire.left.Load(); c.method == http.MethodPost && left != 0 {
			t.Errorf("%s was sent %d times", c.method, 1-left)
		}
	}
}
