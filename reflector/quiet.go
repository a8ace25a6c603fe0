package reflector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// askPatience is how long the server may take to begin a short answer.
	askPatience = 30 * time.Second
	// blindPatience is how long a request may take whose bytes cannot be seen,
	// since its client was built without WrapConfig.
	blindPatience = 10 * time.Minute
	// mostPause is how long a request may wait because the server asks for it
	// (Retry-After) before the source is said to be offline.
	mostPause = 2 * time.Minute
	// quietest is how long a watch may be quiet where no bookmarks come.
	quietest = 10 * time.Minute
	// fruitlessWatches show that the server sends no bookmarks, or none that
	// confirm.
	fruitlessWatches = 2
)

// errQuiet is why a request was given up.
var errQuiet = errors.New("reflector: nothing comes over the link")

// tooQuiet notes that a watch has brought nothing for so long that the link
// may be dead, however open it looks. The server is asked anew. Where it sends
// no bookmarks that is no sign, so the next one may be quiet for longer.
func (s *ListerWatcher) tooQuiet() {
	s.broken()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = min(2*s.quiet, max(quietest, s.o.QuietTimeout))
}

// bookmarked notes that the server sends bookmarks.
func (s *ListerWatcher) bookmarked() {
	ordered := s.ordered()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quiet = s.o.QuietTimeout
	if ordered {
		s.fruitless = 0
	}
}

// confirmedNothing notes that a short watch has ended in good order, behind
// what the server had stated. One that has moved is on its way there.
func (s *ListerWatcher) confirmedNothing(moved bool) {
	ordered := s.ordered()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fruitless++; moved && ordered {
		s.fruitless = 0
	}
}

// ordered says whether the server's versions can be compared. Otherwise only
// the very one that it has stated confirms, which may never come.
func (s *ListerWatcher) ordered() bool {
	rv := s.queue.Accepted()
	_, err := resourceversion.CompareResourceVersion(rv, rv)
	return err == nil
}

// bookmarkless says whether short watches are of no use.
func (s *ListerWatcher) bookmarkless() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fruitless >= fruitlessWatches
}

// mustProve says whether only a full list can confirm the state, and whether
// that is worth it: once in a life of the process, and for a caller who waits.
func (s *ListerWatcher) mustProve() bool {
	return !s.queue.Reached() && s.bookmarkless() && !s.isPostponed() && (s.queue.Confirmed().IsZero() || s.stale())
}

// listPage lists, and gives up once nothing has come for so long.
func (s *ListerWatcher) listPage(ctx context.Context, patience time.Duration, o metav1.ListOptions) (runtime.Object, error) {
	list, _, err := s.measuredPage(ctx, patience, o)
	return list, err
}

// measuredPage also tells the bytes of the unpacked answer, 0 if they cannot be
// seen.
func (s *ListerWatcher) measuredPage(ctx context.Context, patience time.Duration, o metav1.ListOptions) (runtime.Object, int64, error) {
	guarded, g := s.guard(ctx, patience)
	list, err := s.callList(ctx, guarded, o)
	return list, g.p.bytes.Load(), g.end(err)
}

// open opens a watch, and tells over which connection. It gives up once
// nothing has come for so long; some proxies hold the answer back until the
// first event.
func (s *ListerWatcher) open(ctx context.Context, o metav1.ListOptions) (watch.Interface, string, error) {
	w, over, _, err := s.openMeasured(ctx, o)
	return w, over, err
}

// openMeasured also returns what counts the watch's bytes.
func (s *ListerWatcher) openMeasured(ctx context.Context, o metav1.ListOptions) (watch.Interface, string, *pulse, error) {
	s.mu.Lock()
	patience := s.quiet
	s.mu.Unlock()
	stop := ctx
	ctx, g := s.guard(ctx, patience)
	var over link
	w, err := s.callWatch(stop, over.trace(ctx), o)
	if err != nil {
		return nil, "", nil, g.end(err)
	}
	close(g.done)
	conn, _ := over.told()
	return guarded{w, g.cancel}, conn, g.p, nil
}

// guarded ends the context of a watch with it.
type guarded struct {
	watch.Interface
	cancel context.CancelCauseFunc
}

func (g guarded) Stop() {
	g.Interface.Stop()
	g.cancel(nil)
}

// guard cancels a request over which nothing comes.
type guard struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
	p      *pulse
}

// end of the request, whose error it explains.
func (g *guard) end(err error) error {
	close(g.done)
	if cause := context.Cause(g.ctx); err != nil && errors.Is(cause, errQuiet) {
		err = cause
	}
	g.cancel(nil)
	return err
}

func (s *ListerWatcher) guard(ctx context.Context, patience time.Duration) (context.Context, *guard) {
	p := &pulse{}
	ctx, cancel := context.WithCancelCause(context.WithValue(ctx, pulseKey{}, p))
	g := &guard{ctx: ctx, cancel: cancel, done: make(chan struct{}), p: p}
	started := s.o.Clock.Now()
	alarm := s.o.Clock.NewTimer(patience)
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
			if pause := p.pause.Swap(0); pause > 0 { // the client waits, as it was asked to
				before = now
				alarm.Reset(patience + time.Duration(pause))
				continue
			}
			if now == before && (p.seen.Load() || s.o.Clock.Since(started) >= blindPatience) {
				cancel(fmt.Errorf("%w: for %s, from %s", errQuiet, patience, s.store.Source()))
				return
			}
			before = now
			alarm.Reset(patience)
		}
	}()
	return ctx, g
}

// pulse counts signs of life of a request: what our transport sees of it.
type pulse struct {
	seen  atomic.Bool
	beats atomic.Int64
	bytes atomic.Int64
	pause atomic.Int64 // ns that the server has last asked for
}

type pulseKey struct{}

// watchPulse lets the answer to a request note its pulse.
func watchPulse(next func(*http.Request) (*http.Response, error), req *http.Request) (*http.Response, error) {
	p, _ := req.Context().Value(pulseKey{}).(*pulse)
	if p == nil {
		return next(req)
	}
	p.seen.Store(true)
	resp, err := next(req)
	if err == nil {
		p.beats.Add(1)
		// client-go waits for seconds, and for no date.
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 && resp.StatusCode >= 400 {
			p.pause.Store(int64(time.Duration(min(s, int(mostPause/time.Second))) * time.Second))
		}
		resp.Body = &pulsing{resp.Body, p}
	}
	return resp, err
}

type pulsing struct {
	io.ReadCloser
	p *pulse
}

func (b *pulsing) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	b.p.beats.Add(1)
	b.p.bytes.Add(int64(n))
	return n, err
}
