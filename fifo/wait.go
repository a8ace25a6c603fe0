package fifo

import (
	"context"
	"time"

	"github.com/kubewake/kubewake/boltstore"
)

// WaitVersion returns nil once every change up to rv is in the file and has
// been popped, for callers who want to read what they wrote. Versions that
// cannot be compared must be equal. The error is the context's, or ErrClosed.
func (j *Journal) WaitVersion(ctx context.Context, rv string) error {
	j.mu.Lock()
	a := j.awaited[rv]
	if a == nil {
		a = &awaited{}
		j.awaited[rv] = a
	}
	a.callers++
	j.mu.Unlock()
	defer func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		if a.callers--; a.callers == 0 {
			delete(j.awaited, rv)
		}
	}()
	return j.wait(ctx, func() bool { return a.come || atLeast(j.accepted, rv) })
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
func (j *Journal) WaitConfirmed(ctx context.Context, since time.Time, proven bool) error {
	return j.wait(ctx, func() bool {
		at := j.confirmed
		if proven {
			at = j.proven
		}
		return !at.IsZero() && !at.Before(since)
	})
}

// wait waits until ok, which is called with the lock held, and then for what
// has been accepted by that time to be done.
func (j *Journal) wait(ctx context.Context, ok func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.cond.Broadcast()
	})
	defer stop()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting++
	defer func() { j.waiting-- }()
	for until, met := uint64(0), false; ; j.cond.Wait() {
		if !met && ok() {
			until, met = j.lastChange, true
		}
		switch {
		case met && j.doneCount >= until:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case j.closed:
			return ErrClosed
		}
	}
}

// Purge empties the source, as if every object had been deleted, and forgets
// its version, so that the next list is a full one. Like Relist it waits until
// what was accepted before is in the file.
func (j *Journal) Purge(ctx context.Context) error {
	_, err := j.relist(ctx, boltstore.RelistOptions{}, time.Unix(0, 0), func(*boltstore.Relist) (string, string, error) {
		return "", "", nil
	})
	return err
}
