package fifo

import (
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/versions"
)

// advance notes that every change up to rv has been accepted. The server stated
// that version at the given time.
func (q *Queue) advance(rv string, at time.Time) {
	q.version.accepted = rv
	if q.waiters.waiting > 0 {
		defer q.cond.Broadcast()
	}
	if !q.version.reached && q.version.target != "" {
		if q.version.reached = atLeast(rv, q.version.target); q.version.reached {
			q.version.proven = q.version.asked
		}
	}
	if !q.version.reached {
		return
	}
	q.version.confirmed, q.version.slept = at, q.store.Upstream.Slept()
	q.synchronize(q.counts.accepted)
}

// synchronize notes that the queue has synced once that many accepted items are done.
func (q *Queue) synchronize(n uint64) {
	if q.counts.syncAt == nil {
		if q.counts.syncAt = &n; q.batch.bytes > 0 {
			q.wake(q.urgent())
		}
	}
	q.checkSynced()
}

// confirmedAt is when the server last confirmed the state, moved back by the time that
// the machine has slept or was stopped since: monotonic time stood still.
func (q *Queue) confirmedAt() time.Time {
	if q.version.confirmed.Unix() <= 0 { // never
		return q.version.confirmed
	}
	return q.version.confirmed.Add(q.version.slept - q.store.Upstream.Slept())
}

// atLeast says whether version a is certainly b or later. A version that cannot be
// compared is only at least itself.
func atLeast(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return a == b || err == nil && c >= 0
}

func (q *Queue) checkSynced() {
	if q.counts.syncAt == nil || q.counts.done < *q.counts.syncAt || cache.IsDone(q) {
		return
	}
	if q.store.Feed.UnstoredObjects() > 0 {
		return // so client-go's informer treats a list that it could not store
	}
	close(q.synced)
}

// AcceptedVersion is the version up to which every change has been accepted. A watch goes
// on from it in this life of the process. After a restart it is the version in the
// file.
func (q *Queue) AcceptedVersion() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.version.accepted
}

// ShownVersion is the newest version that the server is known to have had. It is the
// accepted one, or that of a list which has confirmed the file, if the watch has not come
// that far yet. A server that states an earlier one has been restored.
func (q *Queue) ShownVersion() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if versions.Newer(q.hold.until, q.version.accepted) {
		return q.hold.until
	}
	return q.version.accepted
}

// NewestVersion is the newest version that has been accepted in this life, or the accepted one.
// A watch that brings objects in no order ends at an earlier one.
func (q *Queue) NewestVersion() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	if versions.Newer(q.version.newest, q.version.accepted) {
		return q.version.newest
	}
	return q.version.accepted
}

// Confirm notes that the server has stated rv as its current version, in answer to a
// question that was asked at the given time. The queue has synced once everything up to
// rv has been popped.
func (q *Queue) Confirm(rv string, asked time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.version.target, q.version.asked, q.version.reached = rv, asked, false
	if atLeast(q.version.accepted, rv) {
		q.advance(q.version.accepted, asked)
	}
}

// Target is the version that the server last stated, "" if none, and when it was
// asked for.
func (q *Queue) Target() (rv string, asked time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.version.target, q.version.asked
}

// Counted is how many changes and bookmarks were accepted in this life.
func (q *Queue) Counted() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.counts.accepted
}

// Stored is how many of the items in Counted are in the file.
func (q *Queue) Stored() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.counts.inFile
}

// Doubt notes that the link to the server is broken. Until the server states its version
// again, nothing is confirmed.
func (q *Queue) Doubt() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.version.target, q.version.reached = "", false
}

// Unconfirm notes that the file no longer has the confirmed state: a part cannot be read
// or, with emptied, the contents have been removed.
func (q *Queue) Unconfirm(emptied bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.version.target, q.version.reached = "", false
	q.version.confirmed, q.version.proven = time.Time{}, time.Time{}
	if emptied {
		q.dropHeld()
		q.version.accepted = ""
	}
	q.release()
}

// Reached says whether the accepted version is the one that the server last stated,
// or a later one.
func (q *Queue) Reached() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.version.reached
}

// ReachedBy says whether Reached will be true once rv has been accepted.
func (q *Queue) ReachedBy(rv string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.version.reached || q.version.target != "" && rv != "" && atLeast(rv, q.version.target)
}

// Confirmed is when the server last confirmed the accepted version: when it was asked, or
// when an event came. It is zero if that has not happened in this life of the process.
func (q *Queue) Confirmed() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.version.confirmed
}

// Age is how long before now the server last confirmed the accepted version. ok says
// whether it has, in this life of the process. Time counts for which the machine slept or,
// as far as that is known, a virtual machine was stopped (see boltstore.Upstream.Slept).
// Otherwise setting the clock changes nothing.
func (q *Queue) Age(now time.Time) (age time.Duration, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	age = now.Sub(q.confirmedAt())
	return age, q.version.confirmed.Unix() > 0 && age >= 0 // not after a purge
}

// ReadableAge is Age, if everything that was accepted is in the file and has been popped.
func (q *Queue) ReadableAge(now time.Time) (age time.Duration, ok bool) {
	age, ok = q.Age(now)
	q.mu.Lock()
	defer q.mu.Unlock()
	return age, ok && q.counts.done >= q.awaitable()
}

// Proven is the time of the question whose answer last confirmed the accepted
// version, or zero. Every change that the server had by then has been accepted. An
// event confirms less: it may have been on its way for long.
func (q *Queue) Proven() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.version.proven
}

// CountAsSynced makes HasSynced true, although the server has not confirmed the state in
// the file.
func (q *Queue) CountAsSynced() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !cache.IsDone(q) {
		close(q.synced)
	}
}
