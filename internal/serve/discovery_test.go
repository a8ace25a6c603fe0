package serve

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// TestSlowDocument: if the body of a discovery document does not come in time, only one
// client waits for it. Until the pause is over the file's documents are given at once,
// and other requests are passed on.
func TestSlowDocument(t *testing.T) {
	asked, late := make(chan string, 10), make(chan struct{}, 10)
	ends := make(chan struct{})
	slow := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/nodes" {
			return
		}
		asked <- r.URL.Path
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":`))        // and no more
		_ = http.NewResponseController(w).Flush() // likewise
		late <- struct{}{}
		select {
		case <-ends:
		case <-r.Context().Done():
		}
	}))
	defer slow.Close()
	defer close(ends)
	clock := fakeClock()
	s := New(Options{File: fileOf(t, apifile.Options{}), Link: linkTo(t, slow, LinkOptions{Clock: clock})})
	s.inTime = func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		e := expiring{ctx, make(chan struct{})}
		go func() {
			defer close(e.over)
			select {
			case <-late:
			case <-ctx.Done():
			}
		}()
		return e, cancel
	}
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.route(w, withCaller(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil),
			&caller{same: true, waiting: newPlaces(100)}))
		return w
	}
	if w := get("/api/v1/nodes"); w.Code != 200 { // the link has a connection
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for _, path := range []string{"/api", "/apis", "/api/v1", "/version"} {
		if w := get(path); w.Code != 200 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	if n := len(asked); n != 1 {
		t.Errorf("the server was asked for %d documents", n)
	}
	if w := get("/api/v1/nodes"); w.Code != 200 {
		t.Errorf("another request: %d %s", w.Code, w.Body)
	}
	clock.Step(longPause)
	if w := get("/version"); w.Code != 200 || len(asked) != 2 {
		t.Errorf("after the pause: %d, asked for %d", w.Code, len(asked))
	}
}

// TestHangingGroup: a server asks another one for the documents of some groups. If that
// one hangs, the link still has the server's own answers.
func TestHangingGroup(t *testing.T) {
	clock := fakeClock()
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/apis/") {
			clock.Step(patience + time.Second)
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	s := New(Options{File: fileOf(t, apifile.Options{}), Link: linkTo(t, server, LinkOptions{Clock: clock})})
	s.inTime = within(time.Second / 2)
	for _, path := range []string{"/api/v1/nodes", "/apis/metrics.k8s.io/v1beta1", "/api/v1/nodes",
		"/apis/metrics.k8s.io", "/api/v1/nodes"} {
		w := httptest.NewRecorder()
		s.route(w, withCaller(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil),
			&caller{same: true, waiting: newPlaces(100)}))
		if path == "/api/v1/nodes" && w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		clock.Step(longPause - time.Second)
	}
}
