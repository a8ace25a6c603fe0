package durable

import "time"

// retries are tasks with a time. For a key, its backoff ends then; without a key, it is a
// look for stuck keys.
type retries struct {
	all  []retry
	wake chan struct{} // there is one more
}

type retry struct {
	q    *keyQueue
	when time.Time
}

// at adds a retry.
func (r *retries) at(when time.Time, q *keyQueue) {
	r.all = append(r.all, retry{q, when})
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// due removes and returns the retries that are due, and says when the next one is.
func (r *retries) due(now time.Time) (due []retry, next time.Time) {
	left := r.all[:0]
	for _, one := range r.all {
		if !one.when.After(now) {
			due = append(due, one)
			continue
		}
		if left = append(left, one); next.IsZero() || one.when.Before(next) {
			next = one.when
		}
	}
	r.all = left
	return due, next
}

// retrying does the retries that are due until the handler ends.
func (s *queues) retrying() {
	for {
		s.mu.Lock()
		now := s.host.Clock.Now()
		due, next := s.retries.due(now)
		for _, r := range due {
			if r.q == nil {
				s.looking = false
				s.host.Backlog.Wake()
				continue
			}
			r.q.waiting = false
			s.schedule(r.q)
		}
		s.mu.Unlock()
		stop := func() bool { return false }
		var timeout <-chan time.Time
		if !next.IsZero() {
			timer := s.host.Clock.NewTimer(next.Sub(now))
			timeout, stop = timer.C(), timer.Stop
		}
		select {
		case <-s.ctx.Done():
			stop()
			return
		case <-s.retries.wake:
		case <-timeout:
		}
		stop()
	}
}
