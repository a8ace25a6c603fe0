package reflector

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// gate has the requests of one config share a connection. net/http opens a connection for
// each request that finds none, and under HTTP/2 keeps only one of them. When many
// sources start or lose their link at once, each would pay for a TLS handshake. So while
// no connection is known to work, one request goes ahead. The others follow once it is
// answered.
type gate struct {
	up       atomic.Bool   // the last request was answered
	turn     chan struct{} // to go ahead
	patience time.Duration // for the one ahead
}

// gatePatience is how long requests wait for the one ahead, which may be for another
// server that does not answer.
const gatePatience = 3 * time.Second

func newGate() *gate { return &gate{turn: make(chan struct{}, 1), patience: gatePatience} }

func (g *gate) roundTrip(req *http.Request, next func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	if !g.up.Load() {
		leave := g.enter(req.Context())
		defer leave()
	}
	resp, err := next(req)
	switch {
	case err == nil:
		g.up.Store(true)
		if resp.StatusCode != http.StatusSwitchingProtocols {
			resp.Body = &gated{resp.Body, g, req.Context()}
		}
	case req.Context().Err() == nil:
		g.up.Store(false)
	}
	return resp, err
}

// enter waits until it is the request's turn, or a connection works, or patience
// ends.
func (g *gate) enter(ctx context.Context) (leave func()) {
	patience := time.NewTimer(g.patience)
	defer patience.Stop()
	select {
	case g.turn <- struct{}{}:
		if !g.up.Load() {
			return func() { <-g.turn }
		}
		<-g.turn
	case <-ctx.Done():
	case <-patience.C:
	}
	return func() {}
}

// gated is the body of an answer. If it breaks off, the connection is broken.
type gated struct {
	io.ReadCloser
	g   *gate
	ctx context.Context
}

func (b *gated) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && b.ctx.Err() == nil {
		b.g.up.Store(false)
	}
	return n, err
}
