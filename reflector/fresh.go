package reflector

import (
	"context"
	"time"
)

// WaitForFresh returns nil once the server has confirmed what is cached no
// longer than maxAge ago, and all of it can be read and has been handed to the
// informer. An event counts as of when it came; with a maxAge of 0 only the
// answer to a question counts that was sent after the call, so that all that
// happened before it can be read, however slow the link. If need be the server is asked, which takes a question and a short
// watch, some two seconds if other types change; where it sends no bookmarks a
// full list. Several callers share that. The error is the context's, or
// fifo.ErrClosed.
func (s *ListerWatcher) WaitForFresh(ctx context.Context, maxAge time.Duration) error {
	now := s.o.Clock.Now()
	since, proven := now.Add(-maxAge), maxAge <= 0
	if age, ok := s.State().Age(now); (!ok || age > maxAge) && !s.queue.Confirmed().Before(since) {
		since = now // the machine has slept, or its clock has been set
	}
	s.mu.Lock()
	s.wanted++
	wanted := &s.wantedSince
	if proven {
		wanted = &s.wantedProven
	}
	if wanted.Before(since) {
		*wanted = since
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.wanted--
	}()
	select {
	case s.hurry <- struct{}{}:
	default:
	}
	return s.queue.WaitConfirmed(ctx, since, proven)
}

// WaitForVersion returns nil once every change up to the resourceVersion can
// be read: a caller who has written an object waits for the version that the
// server returned. It sends nothing: the watch brings the change. The error is
// the context's, or fifo.ErrClosed.
func (s *ListerWatcher) WaitForVersion(ctx context.Context, resourceVersion string) error {
	return s.queue.WaitVersion(ctx, resourceVersion)
}

// staleAsk says whether a caller waits for the answer to a question that is yet
// to be sent.
func (s *ListerWatcher) staleAsk() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted > 0 && s.queue.Asked().Before(s.wantedProven)
}

// stale says whether a caller waits for what the server has yet to confirm.
func (s *ListerWatcher) stale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted > 0 && (s.queue.Confirmed().Before(s.wantedSince) || s.queue.Proven().Before(s.wantedProven))
}
