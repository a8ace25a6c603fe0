package reflector

import (
	"context"
	"sync"
	"time"

	"github.com/kubewake/kubewake/fifo"
)

// waiters are the callers of WaitForFresh.
type waiters struct {
	queue *fifo.Queue
	hurry chan struct{} // one of them has come

	mu sync.Mutex
	n  int
	// since and proven are how fresh the most demanding of them want the state
	// to be confirmed, and proven.
	since, proven time.Time
}

// wait returns once the state has been confirmed, or proven, at the given time or
// later.
func (w *waiters) wait(ctx context.Context, since time.Time, proven bool) error {
	w.mu.Lock()
	w.n++
	wanted := &w.since
	if proven {
		wanted = &w.proven
	}
	if wanted.Before(since) {
		*wanted = since
	}
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.n--
	}()
	select {
	case w.hurry <- struct{}{}:
	default:
	}
	return w.queue.WaitConfirmed(ctx, since, proven)
}

// wantAnswer says whether a caller waits for the answer to a question that is yet
// to be sent.
func (w *waiters) wantAnswer() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n > 0 && w.queue.Asked().Before(w.proven)
}

// want says whether a caller waits for what the server has yet to confirm.
func (w *waiters) want() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n > 0 && (w.queue.Confirmed().Before(w.since) || w.queue.Proven().Before(w.proven))
}

// WaitForFresh returns nil once the server has confirmed what is cached no
// longer than maxAge ago, and all of it can be read and has been handed to the
// informer. An event counts as of when it came. With a maxAge of 0 or less only
// the answer to a question counts that was sent after the call, so that all that
// happened before the call can be read, however slow the link.
//
// If need be the server is asked. That takes a question and a short watch, some
// two seconds if other types change, and a full list where the server sends no
// bookmarks. Several callers share it. The error is the context's, or
// fifo.ErrClosed.
func (s *ListerWatcher) WaitForFresh(ctx context.Context, maxAge time.Duration) error {
	maxAge = max(maxAge, 0) // what is to come confirms nothing
	now := s.clock.Now()
	since := now.Add(-maxAge)
	if age, ok := s.State().Age(now); (!ok || age > maxAge) && !s.queue.Confirmed().Before(since) {
		since = now // the machine has slept, or its clock has been set
	}
	return s.fresh.wait(ctx, since, maxAge <= 0)
}

// WaitForVersion returns nil once every change up to the resourceVersion can
// be read: a caller who has written an object waits for the version that the
// server returned. It sends nothing: the watch brings the change. The error is
// the context's, or fifo.ErrClosed.
func (s *ListerWatcher) WaitForVersion(ctx context.Context, resourceVersion string) error {
	return s.queue.WaitVersion(ctx, resourceVersion)
}
