package live

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// TestClosedServer: a request whose handler runs only after Close is turned away, since
// the file may be closed by then.
func TestClosedServer(t *testing.T) {
	path := testPath(t)
	db, _ := world(t, path, 3, 1)
	s := start(t, db, defaultLimits)
	closeServer(t, s)
	w := httptest.NewRecorder()
	s.http.Handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, statusPath, nil))
	if w.Code != http.StatusServiceUnavailable || strings.Contains(w.Body.String(), "secrets") {
		t.Errorf("%d %q", w.Code, w.Body)
	}
	closeServer(t, s) // once more is no harm
}

// TestCloseDuringRequests is for the race detector: requests come while the
// server is closed.
func TestCloseDuringRequests(t *testing.T) {
	path := testPath(t)
	db, _ := world(t, path, 3, 1)
	for range 20 {
		s := start(t, db, defaultLimits)
		c := dial(t, path)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if _, err := c.Status(ctx); err != nil {
						return // closed
					}
				}
			})
		}
		if _, err := c.Status(ctx); err != nil {
			t.Error(err)
		}
		closeServer(t, s)
		cancel()
		wg.Wait()
	}
}
