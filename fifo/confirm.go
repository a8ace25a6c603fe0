package fifo

import (
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// advance notes that every change up to rv has been accepted, which the server
// told at the given time.
func (q *Queue) advance(rv string, at time.Time) {
	q.accepted = rv
	if a := q.awaited[rv]; a != nil {
		a.come = true
	}
	if q.waiting > 0 {
		defer q.cond.Broadcast()
	}
	if !q.reached && q.target != "" {
		if q.reached = atLeast(rv, q.target); q.reached {
			q.proven = q.asked
		}
	}
	if !q.reached {
		return
	}
	q.confirmed, q.slept = at, q.store.DB().Slept()
	if q.syncAt == nil {
		n := q.count
		if q.syncAt = &n; q.bytes > 0 {
			q.wake(q.urgent())
		}
	}
	q.checkSynced()
}

// confirmedAt is when the server last confirmed the state, earlier by what the
// machine has slept since: monotonic time has stood still for so long.
func (q *Queue) confirmedAt() time.Time {
	if q.confirmed.Unix() <= 0 { // never
		return q.confirmed
	}
	return q.confirmed.Add(q.slept - q.store.DB().Slept())
}

// atLeast says whether version a is known to be b or later. Of versions that
// cannot be compared only the same one is.
func atLeast(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return a == b || err == nil && c >= 0
}

// later says whether version a is known to be after b.
func later(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c > 0
}

func (q *Queue) checkSynced() {
	if q.syncAt == nil || q.doneCount < *q.syncAt {
		return
	}
	select {
	case <-q.synced:
		return
	default:
	}
	if q.store.UnstoredObjects() > 0 {
		return // as with a list that client-go's informer could not store
	}
	select {
	case <-q.synced:
	default:
		close(q.synced)
	}
}

// Accepted is the version up to which every change has been accepted: where a
// watch goes on in this life of the process. After a restart it is the
// version in the file.
func (q *Queue) Accepted() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.accepted
}

// Confirm notes that the server has stated rv as its current version, when it
// was asked at the given time: the answer may have been long on its way. Once
// everything up to it has been popped, the queue has synced.
func (q *Queue) Confirm(rv string, asked time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.target, q.asked, q.reached = rv, asked, false
	if atLeast(q.accepted, rv) {
		q.advance(q.accepted, asked)
	}
}

// Doubt notes that the link to the server is broken: nothing is confirmed,
// whatever is accepted, until the server states its version again.
func (q *Queue) Doubt() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.target, q.reached, q.own = "", false, nil
}

// Unconfirm notes that what is in the file is not what the server has confirmed:
// part of it cannot be read, or, with anew, it has been set aside.
func (q *Queue) Unconfirm(anew bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.target, q.reached, q.own = "", false, nil
	q.confirmed, q.proven = time.Time{}, time.Time{}
	if anew {
		q.accepted = ""
	}
}

// Reached says whether what has been accepted is the version that the server
// last stated, or later.
func (q *Queue) Reached() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reached
}

// ReachedBy is Reached for when rv will have been accepted.
func (q *Queue) ReachedBy(rv string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reached || q.target != "" && rv != "" && atLeast(rv, q.target)
}

// Confirmed is when the server last confirmed what has been accepted, zero if
// it has not in this life of the process: when it was asked, or an event came.
func (q *Queue) Confirmed() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.confirmed
}

// Age is how long before now the server last confirmed what has been accepted,
// ok whether it has in this life of the process. What the machine slept counts,
// and it does not matter whether its clock was set.
func (q *Queue) Age(now time.Time) (age time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	age = now.Sub(q.confirmedAt())
	return age, q.confirmed.Unix() > 0 && age >= 0 // not after a purge
}

// Proven is when the question was asked whose answer last confirmed what has
// been accepted, zero as Confirmed is. Everything of before has been accepted:
// of what an event confirms that is not known, it may have been on its way.
func (q *Queue) Proven() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.proven
}

// Accept declares what is in the file good enough to count as synced, although
// the server has not confirmed it.
func (q *Queue) Accept() {
	q.mu.Lock()
	defer q.mu.Unlock()
	select {
	case <-q.synced:
	default:
		close(q.synced)
	}
}

// Asked is when the server was asked for the version that it last stated.
func (q *Queue) Asked() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.asked
}
