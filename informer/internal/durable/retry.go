package durable

import (
	"time"
)

// retries has what is to be done at a time: keys whose backoff ends then, and,
// without a key, a look for keys that are stuck.
type retries struct {
	all  []retry
	wake chan struct{} // there is one more
}

type retry struct {
	q  *keyQueue
	at time.Time
}

// retryAt tells a key again at a time.
func (d *Handler) retryAt(q *keyQueue, at time.Time) {
	d.retries.all = append(d.retries.all, retry{q, at})
	select {
	case d.retries.wake <- struct{}{}:
	default:
	}
}

// retrying makes keys ready again when their backoff is over.
func (d *Handler) retrying() {
	for {
		d.mu.Lock()
		now := d.host.Clock.Now()
		var next time.Time
		left := d.retries.all[:0]
		for _, r := range d.retries.all {
			switch {
			case r.at.After(now):
			case r.q == nil:
				d.parking.looking = false
				d.host.Backlog.Wake()
				continue
			default:
				r.q.waiting = false
				d.schedule(r.q)
				continue
			}
			if left = append(left, r); next.IsZero() || r.at.Before(next) {
				next = r.at
			}
		}
		d.retries.all = left
		d.mu.Unlock()
		stop := func() bool { return false }
		var due <-chan time.Time
		if !next.IsZero() {
			timer := d.host.Clock.NewTimer(next.Sub(now))
			due, stop = timer.C(), timer.Stop
		}
		select {
		case <-d.ctx.Done():
			stop()
			return
		case <-d.retries.wake:
		case <-due:
		}
		stop()
	}
}
