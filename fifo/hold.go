package fifo

import (
	"context"
	"time"
)

// hold keeps changes that the watch brings late: they are older than a list that has
// confirmed the state.
//
// The file is as the server was at the list's version, but its resume point is older, and
// the watch begins there. Up to the list's version the watch brings only objects that
// came and went in between. Readers must not see them: that would be a step back to
// before the confirmed time. Handlers are told of them. So these changes wait, and are
// committed together with the first one of the list's version or a later one.
type hold struct {
	until    string // version of the list; "": nothing is held
	accepted string // version.accepted without the held changes
	newest   string // the same of version.newest
	changes  uint64 // the same of counts.lastChange
}

// Listed is a list from the server that was equal to the file.
type Listed struct {
	Target string    // the version that the server stated before, see Target
	Asked  time.Time // when it was asked for that
	At     string    // version of the list, the target or later
	Stored uint64    // the value of Stored before the file was compared
}

// ConfirmListed notes that the file was equal to a list. The state is then confirmed as
// of the time of the question. The resume point stays. Events and bookmarks
// before the target (see Target) then confirm nothing. Changes from before the list, which
// the watch still brings, are held back while there is room: they go into the file together
// with those after it.
//
// confirmed is false if something is on its way into the file, or has been stored since:
// the file must be compared again. stands is false if the list has become useless: the
// server has been asked again, or the link has broken.
func (q *Queue) ConfirmListed(l Listed) (confirmed, stands bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed || q.version.target == "" || q.version.target != l.Target || !q.version.asked.Equal(l.Asked):
		return false, false
	case q.version.reached: // an event or a bookmark has confirmed more
		return true, true
	case q.batch.bytes > 0 && q.hold.until == "" || len(q.batch.inflight) > 0 || q.counts.inFile != l.Stored:
		return false, true
	case q.hold.until == "":
		q.hold = hold{until: l.At, accepted: q.version.accepted, newest: q.version.newest, changes: q.counts.lastChange}
	case !atLeast(q.hold.until, l.At):
		q.hold.until = l.At
	}
	q.version.confirmed, q.version.slept, q.version.proven = l.Asked, q.store.Upstream.Slept(), l.Asked
	q.synchronize(q.counts.inFile)
	q.cond.Broadcast()
	return true, true
}

// free is how many pending items may be committed. While changes are held, that is only
// the bookmark before them.
func (q *Queue) free() (n int) {
	if q.hold.until == "" {
		return len(q.batch.pending)
	}
	for n < len(q.batch.pending) && q.batch.pending[n].change == nil {
		n++
	}
	return n
}

// awaitable is counts.lastChange without the held changes: once all of them have come,
// the file will be as it already is.
func (q *Queue) awaitable() uint64 {
	if q.hold.until != "" {
		return q.hold.changes
	}
	return q.counts.lastChange
}

// holdUntil ends the hold if rv is the version that it waits for or a later one.
func (q *Queue) holdUntil(rv string) {
	if q.hold.until != "" && atLeast(rv, q.hold.until) {
		q.release()
	}
}

// release ends the hold. The held changes go into the file in one commit.
func (q *Queue) release() {
	if q.hold.until == "" {
		return
	}
	q.hold = hold{}
	q.batch.together = len(q.batch.pending)
	if q.batch.bytes > 0 {
		q.wake(true)
	}
	if q.failure.at > q.counts.inFile {
		q.tellFailure()
	}
}

// DropHeld forgets the held changes, so that the accepted version is the file's. The next
// watch brings them again, or a relist replaces them. Nothing else may be accepted at the
// same time.
func (q *Queue) DropHeld() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.dropHeld()
}

func (q *Queue) dropHeld() {
	n := q.free()
	if n == len(q.batch.pending) {
		return
	}
	for _, it := range q.batch.pending[n:] {
		if it.change != nil {
			q.batch.bytes -= it.change.Memory()
		}
	}
	clear(q.batch.pending[n:])
	q.batch.pending = q.batch.pending[:n]
	q.version.accepted, q.version.newest = q.hold.accepted, q.hold.newest
	if n > 0 {
		q.version.accepted = q.batch.pending[n-1].rv
	}
	q.version.reached = q.version.reached && atLeast(q.version.accepted, q.version.target)
	if q.failure.at > q.counts.inFile {
		q.failure.last = nil
	}
	q.peel()
	q.cond.Broadcast()
}

// AwaitStored returns nil once Stored is more than since, or StoredUpTo(rv). The error is
// the context's, or ErrClosed.
func (q *Queue) AwaitStored(ctx context.Context, since uint64, rv string) error {
	q.countWaiting(1)
	defer q.countWaiting(-1)
	return q.await(ctx, func() bool { return q.counts.inFile > since || q.storedUpTo(rv) })
}

// StoredUpTo says whether every change up to rv has been accepted and is in the file.
func (q *Queue) StoredUpTo(rv string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.storedUpTo(rv)
}

func (q *Queue) storedUpTo(rv string) bool {
	return atLeast(q.version.accepted, rv) && q.counts.inFile >= q.counts.lastChange
}
