package fifo

import (
	"context"
	"time"

	"github.com/kubewake/kubewake/boltstore"
)

// WaitVersion returns nil once every change up to rv is in the file and has
// been popped, for callers who want to read what they wrote. Versions that
// cannot be compared must be equal. The error is the context's, or ErrClosed.
func (q *Queue) WaitVersion(ctx context.Context, rv string) error {
	q.mu.Lock()
	a := q.awaited[rv]
	if a == nil {
		a = &awaited{}
		q.awaited[rv] = a
	}
	a.callers++
	q.mu.Unlock()
	defer func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if a.callers--; a.callers == 0 {
			delete(q.awaited, rv)
		}
	}()
	return q.wait(ctx, func() bool { return a.come || atLeast(q.accepted, rv) })
}

// awaited is a version that is waited for. One that cannot be compared may come
// and be followed by the next before who waits looks.
type awaited struct {
	callers int
	come    bool
}

// WaitConfirmed returns nil once the server has confirmed the state at the
// given time or later, and all of it is in the file and has been popped; with
// proven by the answer to a question, see Proven. The error is the context's, or
// ErrClosed.
func (q *Queue) WaitConfirmed(ctx context.Context, since time.Time, proven bool) error {
	return q.wait(ctx, func() bool {
		at := q.confirmed
		if proven {
			at = q.proven
		}
		return !at.IsZero() && !at.Before(since)
	})
}

// wait waits until ok, which is called with the lock held, and then for what
// has been accepted by that time to be done.
func (q *Queue) wait(ctx context.Context, ok func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.cond.Broadcast()
	})
	defer stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting++
	defer func() { q.waiting-- }()
	for until, met := uint64(0), false; ; q.cond.Wait() {
		if !met && ok() {
			until, met = q.lastChange, true
		}
		switch {
		case met && q.doneCount >= until:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case q.closed:
			return ErrClosed
		}
	}
}

// Purge empties the source, as if every object had been deleted, and forgets
// its version, so that the next list is a full one. Like BeginRelist it waits until
// what was accepted before is in the file.
func (q *Queue) Purge(ctx context.Context) error {
	r, err := q.BeginRelist(ctx, boltstore.RelistOptions{})
	if err != nil {
		return err
	}
	defer r.Abort()
	return r.end(ctx, "", "", time.Unix(0, 0), false)
}

// Flush waits until everything accepted is in the file, bookmarks included.
func (q *Queue) Flush(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.cond.Broadcast()
	})
	defer stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flushing++
	defer func() { q.flushing-- }()
	for ctx.Err() == nil && (len(q.pending) > 0 || len(q.inflight) > 0) {
		q.store.Flush()
		q.cond.Wait()
	}
	return ctx.Err()
}
