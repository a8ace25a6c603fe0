package main

import (
	"net/http"
	"sync/atomic"

	"github.com/kubewake/kubewake/internal/packed"
)

// wire counts requests, and the bytes of their answers as they are sent.
type wire struct {
	next     http.RoundTripper
	compress bool
	requests *atomic.Int64
	bytes    *atomic.Int64
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.requests.Add(1)
	return packed.RoundTrip(w.next, req, w.compress, w.bytes)
}

// WrappedRoundTripper returns the transport beneath, for client-go.
func (w *wire) WrappedRoundTripper() http.RoundTripper { return w.next }
