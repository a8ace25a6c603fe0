package fifo

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/kubewake/kubewake/boltstore"
)

// WaitVersion returns nil once every change up to rv is in the file and has been popped.
// So a caller can read what it wrote. If versions cannot be compared, rv must be the last
// one that has come. The error is the context's or ErrClosed, or it says that rv is no
// version.
func (q *Queue) WaitVersion(ctx context.Context, rv string) error {
	if rv == "" || rv == "0" {
		return errNoVersion
	}
	return q.wait(ctx, func() bool {
		return atLeast(q.version.accepted, rv) || q.hold.until != "" && atLeast(q.hold.until, rv)
	})
}

// WaitDone returns nil once everything that was accepted before the call is in the file
// and has been popped. The error is the context's, or ErrClosed.
func (q *Queue) WaitDone(ctx context.Context) error {
	return q.wait(ctx, func() bool { return true })
}

var errNoVersion = errors.New("fifo: there is no version to wait for: give the resourceVersion of the object that " +
	"the server returned for the write")

// WaitConfirmed returns nil once the server has confirmed the state at the given time or
// later, and all of it is in the file and has been popped. With proven only the answer to
// a question counts, see Proven. The error is the context's or ErrClosed.
func (q *Queue) WaitConfirmed(ctx context.Context, since time.Time, proven bool) error {
	return q.wait(ctx, func() bool {
		at := q.version.confirmed
		if proven {
			at = q.version.proven
		}
		return !at.IsZero() && !at.Before(since)
	})
}

// wakeAfter wakes the waiting callers once ctx has ended.
func (q *Queue) wakeAfter(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.cond.Broadcast()
	})
}

// wait waits until ok is true, and then until everything that was accepted by that
// time is done. It calls ok with the lock held.
func (q *Queue) wait(ctx context.Context, ok func() bool) error {
	q.countWaiting(1)
	defer q.countWaiting(-1)
	until, met := uint64(0), false
	return q.await(ctx, func() bool {
		if !met && ok() {
			until, met = q.awaitable(), true
		}
		return met && q.counts.done >= until
	})
}

func (q *Queue) countWaiting(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters.waiting += n
}

// await waits until ok is true. It calls ok with the lock held. The error is the
// context's, or ErrClosed.
func (q *Queue) await(ctx context.Context, ok func() bool) error {
	defer q.wakeAfter(ctx)()
	q.mu.Lock()
	defer q.mu.Unlock()
	for !ok() {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case q.closed:
			return ErrClosed
		}
		q.cond.Wait()
	}
	return nil
}

// Purge empties the source, as if every object had been deleted, and forgets its version,
// so that the next list is a full one. Like BeginRelist, it first waits until everything
// accepted before is in the file.
func (q *Queue) Purge(ctx context.Context) error {
	r, err := q.BeginRelist(ctx, boltstore.RelistOptions{})
	if err != nil {
		return err
	}
	defer r.Abort()
	return r.end(ctx, "", "", "", time.Unix(0, 0), false)
}

// Flush waits until everything accepted before the call is in the file, bookmarks
// included. Held changes do not count, see ConfirmListed. The error is the context's, or
// boltstore.ErrClosed if the file was closed or the store released before.
func (q *Queue) Flush(ctx context.Context) error {
	waiting, end := context.WithCancel(ctx)
	defer end()
	go func() {
		select {
		case <-q.store.Feed.Closed():
			end()
		case <-q.store.Feed.Ended():
			end()
		case <-waiting.Done():
		}
	}()
	defer q.wakeAfter(waiting)()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiters.flushing++
	defer func() { q.waiters.flushing-- }()
	for until := q.counts.accepted; q.counts.inFile < until && (q.free() > 0 || len(q.batch.inflight) > 0); {
		if waiting.Err() != nil {
			return cmp.Or(context.Cause(ctx), boltstore.ErrClosed)
		}
		q.store.Feed.Flush()
		q.cond.Wait()
	}
	return context.Cause(ctx)
}
