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
	w.nudge()
	return w.queue.WaitConfirmed(ctx, since, proven)
}

// nudge has the watch see whether a caller waits for what only a question brings.
func (w *waiters) nudge() {
	select {
	case w.hurry <- struct{}{}:
	default:
	}
}

// wantAnswer says whether a caller waits for the answer to a question that is yet
// to be sent.
func (w *waiters) wantAnswer() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, asked := w.queue.Target()
	return w.n > 0 && asked.Before(w.proven)
}

// want says whether a caller waits for a state that the server has yet to confirm.
func (w *waiters) want() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n > 0 && (w.queue.Confirmed().Before(w.since) || w.queue.Proven().Before(w.proven))
}

// WaitForFresh returns nil once the server has confirmed the cache no longer than maxAge
// ago, in this life or an earlier one. All of it can then be read, and has been handed to
// the informer. An event confirms as of when it came. With a maxAge of 0 or less only the
// answer to a question sent after the call counts. So everything that happened before the
// call can be read, however slow the link.
//
// If necessary, the server is asked. A list of the metadata of few objects answers in a
// round trip or two (ConfirmAuto). Otherwise it takes a question and a short watch, some two
// seconds if other types change. If the server sends no bookmarks, as kube-apiserver for
// events, it takes a full list. While callers keep coming, full lists are read ever more
// rarely, up to a minute apart. Several callers share question, watch and list. The error is
// the context's, or fifo.ErrClosed.
func (s *Reflector) WaitForFresh(ctx context.Context, maxAge time.Duration) error {
	maxAge = max(maxAge, 0) // nothing can be confirmed in advance
	now := s.clock.Now()
	since := now.Add(-maxAge)
	switch age, ok := s.State().Age(now); {
	case (!ok || age > maxAge) && !s.queue.Confirmed().Before(since):
		since = now // the machine has slept, or its clock has been set
	case ok && maxAge > 0 && age <= maxAge && s.queue.Confirmed().IsZero() && s.unusable() == "":
		return nil // an earlier life has asked
	}
	return s.fresh.wait(ctx, since, maxAge <= 0)
}

// ReadableAge is how long ago the server last confirmed the cache. ok says whether it has,
// in this life, and whether all of what it confirmed can be read by now.
func (s *Reflector) ReadableAge() (age time.Duration, ok bool) {
	return s.queue.ReadableAge(s.clock.Now())
}

// WaitForVersion returns nil once every change up to the resourceVersion can be read.
// After writing an object, wait for the version that the server returned. WaitForVersion
// sends nothing: the watch brings the change. The error is the context's, or
// fifo.ErrClosed.
func (s *Reflector) WaitForVersion(ctx context.Context, resourceVersion string) error {
	return s.queue.WaitVersion(ctx, resourceVersion)
}
