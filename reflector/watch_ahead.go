package reflector

import (
	"cmp"
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// Bounds of the events that wait for a slow relist to end, in bytes as sent and in
// number. Beyond them the relist goes on without a watch.
const (
	aheadBytes  = 8 << 20
	aheadEvents = 20_000
)

// ahead is a watch at the version of a relist's first page, opened while the relist still
// reads pages. On a slow link the server may have forgotten that version when the last
// page has come. The watch keeps its events and hands them out later.
type ahead struct {
	from string // version that it began at
	over string // connection
	out  chan watch.Event
	done chan struct{} // closed by Stop
	once sync.Once

	mu     sync.Mutex
	cond   sync.Cond
	cancel context.CancelFunc
	inner  watch.Interface
	kept   []watch.Event
	last   string // version up to which all events have come
	// opening: the server has not answered yet.
	opening bool
	ended   bool  // nothing more comes
	failed  bool  // something is missing
	bytes   int64 // received over earlier watches
	taken   bool  // it is followed
}

var _ watch.Interface = &ahead{}

// openAhead returns a watch that begins at the version and lives as long as ctx.
func openAhead(ctx context.Context, requests *requests, patience time.Duration, rv string) *ahead {
	a := &ahead{from: rv, last: rv, out: make(chan watch.Event), done: make(chan struct{})}
	a.cond.L = &a.mu
	a.open(ctx, requests, patience)
	return a
}

// again opens the watch again where it broke, if the server allows that.
func (a *ahead) again(ctx context.Context, requests *requests, patience time.Duration) {
	a.mu.Lock()
	broke := a.ended && !a.failed
	a.mu.Unlock()
	if broke {
		a.open(ctx, requests, patience)
	}
}

// open opens the watch, without waiting for the answer. The watch lives as long as
// ctx, or until Stop.
func (a *ahead) open(ctx context.Context, requests *requests, patience time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cancel != nil {
		a.cancel()
	}
	rv := a.last
	ctx, a.cancel = context.WithCancel(ctx)
	a.opening, a.ended = true, false
	go func() {
		w, over, p, err := requests.watch(ctx, patience, metav1.ListOptions{
			ResourceVersion: rv, AllowWatchBookmarks: true, TimeoutSeconds: new(int64(time.Hour / time.Second)),
		})
		a.mu.Lock()
		a.opening, a.ended = false, err != nil || a.stopped()
		a.failed = a.failed || isExpired(err)
		a.inner, a.over = w, over
		ended := a.ended
		a.cond.Broadcast()
		a.mu.Unlock()
		switch {
		case !ended:
			a.keep(ctx, w, p)
		case err == nil: // Stop came before the answer
			w.Stop()
		}
	}()
}

// keep takes events until the watch ends.
func (a *ahead) keep(ctx context.Context, w watch.Interface, p *pulse) {
	for {
		ev, ok := nextOf(ctx, w)
		if !ok {
			break
		}
		a.mu.Lock()
		switch {
		case ev.Type == watch.Error:
			a.failed = a.failed || isExpired(apierrors.FromObject(ev.Object))
		case !a.taken && (a.bytes+p.bytes.Load() > aheadBytes || len(a.kept) >= aheadEvents):
			a.failed = true
		default:
			a.kept = append(a.kept, ev)
			a.last = cmp.Or(versionOf(ev.Object), a.last)
		}
		failed := a.failed
		a.cond.Broadcast()
		for a.taken && len(a.kept) > 1000 && !a.stopped() { // the reader is slower
			a.cond.Wait()
		}
		a.mu.Unlock()
		if failed {
			break
		}
	}
	w.Stop()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	a.bytes += p.bytes.Load()
	a.cond.Broadcast()
}

// nextOf returns the watch's next event, if there is one before ctx ends. The channel may
// stay open after that.
func nextOf(ctx context.Context, w watch.Interface) (ev watch.Event, ok bool) {
	select {
	case ev, ok = <-w.ResultChan():
	case <-ctx.Done():
	}
	return ev, ok
}

// takeLeft returns the watch that a relist has left, if it is whole and began at this version,
// and its connection. It waits for a server that has not answered yet: a second watch would
// wait for the same answer.
func (s *Reflector) takeLeft(rv string) (watch.Interface, string) {
	a := s.left
	s.left = nil
	if a == nil {
		return nil, ""
	}
	a.mu.Lock()
	for a.opening && a.from == rv {
		a.cond.Wait()
	}
	whole := !a.failed && a.from == rv && (!a.ended || len(a.kept) > 0)
	a.taken = whole
	a.mu.Unlock()
	if !whole {
		a.Stop()
		return nil, ""
	}
	go a.give()
	return a, a.over
}

// give hands out the kept events, then those that follow.
func (a *ahead) give() {
	defer close(a.out)
	for {
		a.mu.Lock()
		for len(a.kept) == 0 && !a.ended && !a.stopped() {
			a.cond.Wait()
		}
		if a.stopped() || len(a.kept) == 0 {
			a.mu.Unlock()
			return
		}
		ev := a.kept[0]
		a.kept[0] = watch.Event{}
		a.kept = a.kept[1:]
		a.cond.Broadcast()
		a.mu.Unlock()
		select {
		case a.out <- ev:
		case <-a.done:
			return
		}
	}
}

// ResultChan implements watch.Interface.
func (a *ahead) ResultChan() <-chan watch.Event { return a.out }

// Stop implements watch.Interface. It does nothing to nil.
func (a *ahead) Stop() {
	if a == nil {
		return
	}
	a.once.Do(func() { close(a.done) })
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.cancel != nil {
		a.cancel()
	}
	if a.inner != nil {
		a.inner.Stop()
	}
	a.cond.Broadcast()
}

func (a *ahead) stopped() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}
