package reflector

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
)

// mostUnstoredWait is how long unstored objects wait at most until everything is
// listed again.
const mostUnstoredWait = 10 * time.Minute

// unstored says when everything is listed again for the objects that could not be stored.
// A new life, which may have other functions, lists at once. Then the waits double, since
// nothing shows when a function will succeed. That relist takes none of these objects for
// unchanged. It treats all other objects as any relist does.
type unstored struct {
	queue *fifo.Queue
	store *boltstore.Claimed
	clock clock.PassiveClock
	first time.Duration // Options.retryUnstored

	mu   sync.Mutex
	wait time.Duration // that has passed before the last try, 0 if there was none
	at   time.Time     // of the next one; zero: now
	idle bool          // there is nothing to be listed for
}

// in is how long it is until everything is listed again. due says whether there is any
// unstored object.
func (u *unstored) in() (d time.Duration, due bool) {
	_, failed := u.queue.Failed()
	none := u.store.Feed.UnstoredObjects() == 0
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.clock.Now()
	switch {
	case none && failed == nil:
		u.wait, u.at, u.idle = 0, time.Time{}, true
		return 0, false
	case u.idle: // the first unstored object in a running life
		u.wait, u.at, u.idle = u.first, now.Add(u.first), false
	}
	d = max(u.at.Sub(now), 0)
	if none { // its note is not in the file yet, which may have no room
		d = max(d, u.first)
	}
	return d, true
}

// due says whether it is time.
func (u *unstored) due() bool {
	d, due := u.in()
	return due && d == 0 && u.store.Feed.UnstoredObjects() > 0
}

// tried: everything has been listed, or could not be.
func (u *unstored) tried() {
	if u.store.Feed.UnstoredObjects() == 0 {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.idle = false
	u.wait = min(max(2*u.wait, u.first), mostUnstoredWait)
	u.at = u.clock.Now().Add(u.wait)
}
