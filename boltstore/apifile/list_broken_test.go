package apifile

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
)

// broken takes a part of an answer, and then leaves, refuses more or panics.
type broken struct {
	httptest.ResponseRecorder
	writes int
	how    int
	leave  func()
}

func (b *broken) Write(p []byte) (int, error) {
	if b.writes--; b.writes >= 0 {
		return len(p), nil
	}
	switch b.leave(); b.how {
	case 0:
		panic("a bug")
	case 1:
		panic(http.ErrAbortHandler)
	case 2:
		return 0, errors.New("the client left")
	}
	return len(p), nil
}

// TestBrokenRequests: requests that break leave the room for lists to others.
func TestBrokenRequests(t *testing.T) {
	_, h := large(t, 60)
	forms := []string{"application/json", protobuf, asTable,
		protobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "x/y"}
	queries := []string{"", "?limit=20", "?limit=2000", "?limit=5&continue=x", "?watch=1",
		"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
		"?resourceVersion=10&resourceVersionMatch=Exact", "?resourceVersion=60&resourceVersionMatch=Exact&limit=3",
		"?fieldSelector=x=y", "?limit=50&labelSelector=a=b"}
	var under sync.WaitGroup
	for range 4 {
		under.Go(func() {
			for range 50 {
				ctx, cancel := context.WithCancel(t.Context())
				w := &broken{writes: rand.IntN(80), how: rand.IntN(4), leave: cancel}
				r := httptest.NewRequestWithContext(ctx, http.MethodGet,
					"/api/v1/configmaps"+queries[rand.IntN(len(queries))], nil)
				r.Header.Set("Accept", forms[rand.IntN(len(forms))])
				if rand.IntN(2) == 0 {
					r.Header.Set("Accept-Encoding", "gzip")
				}
				func() {
					defer func() { _ = recover() }() // as net/http does
					if r.URL.Query().Get("watch") != "" {
						go cancel()
					}
					h.ServeHTTP(w, r)
				}()
				cancel()
			}
		})
	}
	under.Wait()
	if n := room.Held(); n != 0 {
		t.Errorf("%d bytes are held", n)
	}
}
