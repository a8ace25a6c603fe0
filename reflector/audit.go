package reflector

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A server that has been restored to an earlier state and has overtaken the
// file's version since looks as if nothing had happened. Two things can tell:
// how many objects there were at the file's version, and a list of all of them.

// watchedLong notes that a long watch has ended in order: a good moment to
// count.
func (s *ListerWatcher) watchedLong() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countDue = !s.counted && !s.countless
}

// outage notes that the server could not be reached, and may be another when it
// can.
func (s *ListerWatcher) outage() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted, s.countDue = false, false
}

// miscounted asks the server, once after each outage, how many objects there
// were at the version that the file has, and says whether it is another number:
// what the file knows as that version is not what the server does.
func (s *ListerWatcher) miscounted(ctx context.Context) (bool, error) {
	s.mu.Lock()
	due := s.countDue
	s.countDue = false
	s.mu.Unlock()
	if !due {
		return false, nil
	}
	differs, err := s.countDiffers(ctx)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counted = true
	s.restored = s.restored || differs // until a relist has succeeded
	return differs, nil
}

// countDiffers is false where the server does not tell.
func (s *ListerWatcher) countDiffers(ctx context.Context) (bool, error) {
	if err := s.queue.Flush(ctx); err != nil {
		return false, err
	}
	rv := s.queue.Accepted()
	if !s.ordered() {
		return false, nil // no number: it may not be asked for
	}
	if _, failed := s.queue.Failed(); failed != nil || s.store.UnstoredObjects() > 0 {
		return false, nil // some could not be stored
	}
	list, err := s.listPage(ctx, min(s.o.QuietTimeout, askPatience), metav1.ListOptions{
		Limit: 1, ResourceVersion: rv, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	if err != nil {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		return false, nil // forgotten, or not understood: the watch goes on
	}
	m, err := meta.ListAccessor(list)
	if err != nil || m.GetResourceVersion() != rv {
		return false, nil
	}
	n := int64(meta.LenList(list))
	switch rest := m.GetRemainingItemCount(); {
	case rest != nil:
		n += *rest
	case m.GetContinue() != "":
		return false, nil // a selection is not counted
	}
	return n != int64(s.store.State().Objects), nil
}

// recount looks whether a relist has made the numbers equal. If not, the list
// function does not return all that the server has, and numbers mean nothing.
func (s *ListerWatcher) recount(ctx context.Context) error {
	differs, err := s.countDiffers(ctx)
	if err != nil || !differs {
		return err
	}
	s.mu.Lock()
	s.countless = true
	s.mu.Unlock()
	s.o.Logger.Info("The server counts objects that it does not list; numbers are not compared any more", "source", s.store.Source().String())
	return nil
}

// readIn is how long a watch may go on until everything is to be read: to be
// compared, or because a proof was put off. ok says whether it is.
func (s *ListerWatcher) readIn() (time.Duration, bool) {
	d, ok := s.auditIn()
	if s.isPostponed() && !s.queue.Reached() && s.bookmarkless() {
		s.mu.Lock()
		proof := s.notBefore.Sub(s.o.Clock.Now())
		s.mu.Unlock()
		if !ok || proof < d {
			d, ok = proof, true
		}
	}
	return d, ok
}

// auditIn is how long it is until everything is to be compared, ok whether it
// ever is.
func (s *ListerWatcher) auditIn() (d time.Duration, ok bool) {
	if s.o.AuditEvery <= 0 {
		return 0, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.read.Add(s.o.AuditEvery)
	if at.Before(s.notBefore) {
		at = s.notBefore
	}
	return at.Sub(s.o.Clock.Now()), true
}

// postponed is how long a relist that has failed, and that nothing needs, is
// not tried again.
const postponed = 5 * time.Minute

// postpone puts off a relist that has failed, if the watch can do without it.
func (s *ListerWatcher) postpone(ctx context.Context, reason string) bool {
	if ctx.Err() != nil {
		return false
	}
	if reason == ReasonUnstored {
		s.triedAgain()
		return true
	}
	if reason != ReasonAudit && reason != ReasonUnconfirmed {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notBefore = s.o.Clock.Now().Add(postponed)
	return true
}

// isPostponed says whether such a relist is put off.
func (s *ListerWatcher) isPostponed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.o.Clock.Now().Before(s.notBefore)
}

// suspect says whether the file may be of another history than the server's, or
// is to be compared as a matter of course.
func (s *ListerWatcher) suspect(ctx context.Context) (string, error) {
	if d, ok := s.auditIn(); ok && d <= 0 {
		return ReasonAudit, nil
	}
	differs, err := s.miscounted(ctx)
	if err != nil {
		return "", s.fail(ctx, fmt.Errorf("count %s: %w", s.store.Source(), err))
	}
	if differs {
		return ReasonCounts, nil
	}
	return "", nil
}
