package reflector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubewake/kubewake/boltstore"
)

const (
	// askPatience is how long the server may take to begin a short answer.
	askPatience = 30 * time.Second
	// blindPatience is how long a request may take if its bytes cannot be seen,
	// since its client was built without WrapConfig.
	blindPatience = 10 * time.Minute
	// mostPause is how long a request may wait because the server asks for it
	// (Retry-After) before the source counts as offline.
	mostPause = 2 * time.Minute
)

// errQuiet and errTooLarge say why a request was given up.
var (
	errQuiet    = errors.New("reflector: nothing comes over the link")
	errTooLarge = errors.New("reflector: the page is too large, and asked for again with fewer objects")
)

// guarded is a watch that ends its context when it is stopped.
type guarded struct {
	watch.Interface
	cancel context.CancelCauseFunc
	p      *pulse
	once   sync.Once
}

// Stop implements watch.Interface. A stopped watch of client-go may send an error, and
// one that watch.Filter wraps waits for a reader, so Stop reads the channel to its end.
// Other watches may never close their channel.
func (g *guarded) Stop() {
	g.Interface.Stop()
	g.cancel(nil)
	if g.p.seen.Load() {
		g.once.Do(func() {
			go func() {
				for range g.Interface.ResultChan() { // to its end
				}
			}()
		})
	}
}

// guard cancels a request over which nothing arrives.
type guard struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
	p      *pulse
}

// end ends the guard, and explains the request's error.
func (g *guard) end(err error) error {
	close(g.done)
	switch cause := context.Cause(g.ctx); {
	case err != nil && errors.Is(cause, errQuiet):
		err = cause
	case err != nil && g.p.over.Load():
		err = errTooLarge
	}
	g.cancel(nil)
	return err
}

func (r *requests) guard(ctx context.Context, patience time.Duration, asked metav1.ListOptions) (
	context.Context, *guard,
) {
	p := &pulse{asked: asked}
	if r.server != "" {
		p.of = r.source
	}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, pulseKey{}, p))
	g := &guard{ctx: ctx, cancel: cancel, done: make(chan struct{}), p: p}
	started := r.clock.Now()
	alarm := r.clock.NewTimer(patience)
	go func() {
		defer alarm.Stop()
		for before := int64(0); ; {
			select {
			case <-g.done:
				return
			case <-ctx.Done():
				return
			case <-alarm.C():
			}
			now := p.beats.Load()
			if pause := p.pause.Swap(0); pause > 0 { // the client waits because the server has asked for it
				before = now
				alarm.Reset(patience + time.Duration(pause))
				continue
			}
			if now == before && (p.seen.Load() || r.clock.Since(started) >= blindPatience) {
				cancel(fmt.Errorf("%w: for %s, from %s", errQuiet, patience, r.source))
				return
			}
			before = now
			alarm.Reset(patience)
		}
	}()
	return ctx, g
}

// pulse counts the signs of life of a request that the transport sees.
type pulse struct {
	seen  atomic.Bool
	beats atomic.Int64
	bytes atomic.Int64
	pause atomic.Int64 // ns that the server has last asked for
	// timeout is the timeoutSeconds that the request states, 0 without one.
	timeout atomic.Int64
	// answer counts bytes like bytes, from the caller's last request on: a list function
	// may read several pages.
	answer atomic.Int64
	most   int64       // how much answer may have, 0: any number
	over   atomic.Bool // it had more
	// asked are the options that the source has asked for. of is the source if its
	// identity was learned from its requests.
	asked metav1.ListOptions
	of    boltstore.Source
}

// seenBytes is how many bytes have come, 0 for nil.
func (p *pulse) seenBytes() int64 {
	if p == nil {
		return 0
	}
	return p.bytes.Load()
}

type pulseKey struct{}

// beginAnswer notes that the caller itself sends a request, not the transport for it.
func beginAnswer(req *http.Request) {
	if p, _ := req.Context().Value(pulseKey{}).(*pulse); p != nil {
		p.answer.Store(0)
	}
}

// notePulse sends a request, and counts the signs of life of its answer.
func notePulse(next func(*http.Request) (*http.Response, error), req *http.Request) (*http.Response, error) {
	p, _ := req.Context().Value(pulseKey{}).(*pulse)
	if p == nil {
		return next(req)
	}
	p.seen.Store(true)
	if s, err := strconv.Atoi(req.URL.Query().Get("timeoutSeconds")); err == nil && s > 0 {
		p.timeout.Store(int64(s))
	}
	began := time.Now()
	resp, err := next(req)
	if err == nil {
		p.beats.Add(1)
		// client-go obeys seconds, but not a date.
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 && resp.StatusCode >= 400 {
			p.pause.Store(int64(time.Duration(min(s, int(mostPause/time.Second))) * time.Second))
		}
		body := &pulsing{ReadCloser: resp.Body, p: p}
		if page, _ := req.Context().Value(rawKey{}).(*rawPage); page != nil && page.only != nil && page.only.soon {
			body.until = began.Add(bookmarkAfter)
		}
		resp.Body = body
	}
	return resp, err
}

type pulsing struct {
	io.ReadCloser
	p     *pulse
	until time.Time // zero: any time
}

// mostBeat is how many bytes are read at once. Under HTTP/1.1 a read returns when it has
// filled the buffer, and on a slow link a large buffer would hide that bytes come.
const mostBeat = 16 << 10

func (b *pulsing) Read(buf []byte) (int, error) {
	buf = buf[:min(len(buf), mostBeat)]
	n, err := b.ReadCloser.Read(buf)
	b.p.beats.Add(1)
	b.p.bytes.Add(int64(n))
	if all := b.p.answer.Add(int64(n)); b.p.most > 0 && all > b.p.most {
		b.p.over.Store(true)
		return 0, errTooLarge
	}
	if err == nil && !b.until.IsZero() && time.Now().After(b.until) {
		return n, fmt.Errorf("%w: it takes longer than a bookmark", errNotWorth)
	}
	return n, err
}
