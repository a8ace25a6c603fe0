package reflector

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// linkState says what the server has stated, or what must happen before the source can go
// on. The table in docs/design/waking.md has the transitions.
type linkState int

const (
	// linkInDoubt: the link broke, or nothing was asked in this life. Nothing that
	// arrives confirms.
	linkInDoubt linkState = iota
	// linkStated: the server has stated its version, in an answer or with a list. Until
	// the queue has reached that version, the table calls the state asked. After that it
	// is confirmed: each event and bookmark confirms.
	linkStated
	// linkExpired: the server has forgotten the accepted version. A relist comes
	// before the next watch.
	linkExpired
	// linkRestored: the server is of another timeline. A relist that compares
	// content comes before the next watch.
	linkRestored
	// linkUnreadable: watches fail before their first event again and again. A relist
	// comes before the next watch.
	linkUnreadable
	// linkDisproved: the file differs from the server's list of its own version. A relist
	// comes before the next watch.
	linkDisproved
)

// link is the state machine of a source's link to its server. Each transition is one
// method. Only a restore that was noticed is also on disk, since the next life may have
// no other way to notice it.
type link struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	state   linkState
	doubted time.Time // when linkStated was last left
	refused time.Time // since when the server has only refused; zero if it does not
	// fruitless counts the short watches in a row that brought no bookmark.
	fruitless int
	// failures counts the watches in a row that began with an error, see began.
	failures int
	noted    bool // the file knows of the restore, and has no pages from before it
}

// fruitlessWatches show that the server sends no bookmarks, or none that
// confirm.
const fruitlessWatches = 2

// set enters the state. The caller holds mu.
func (l *link) set(state linkState) {
	if l.state == linkStated && state != linkStated {
		l.doubted = l.clock.Now()
	}
	l.state = state
}

// broke: earlier answers do not count any more. A relist that is due stays due.
func (l *link) broke() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == linkStated {
		l.set(linkInDoubt)
	}
}

// stated: the server has stated its version.
func (l *link) stated() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(linkStated)
}

// expired: the server has forgotten the version to go on from.
func (l *link) expired() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != linkRestored {
		l.set(linkExpired)
	}
}

// restored: the server is of another timeline.
func (l *link) restored() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(linkRestored)
	l.noted = false
}

// restoreNoted: the file knows of the restore. From here on, the pages of an interrupted
// first list are of the new timeline.
func (l *link) restoreNoted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.noted = true
}

// owesNote says whether the server was restored and the file does not know it yet.
func (l *link) owesNote() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == linkRestored && !l.noted
}

// disproved: the watch has left out changes. Other reasons for a relist say more.
func (l *link) disproved() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == linkStated || l.state == linkInDoubt {
		l.set(linkDisproved)
	}
}

// another: the server is of another cluster. A restore of the one before says nothing
// about it.
func (l *link) another() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state == linkRestored {
		l.set(linkInDoubt)
	}
}

// began says how a watch has begun: well, if it brought an event or ended on time. It began
// badly if it was refused, brought an error first or ended at once (see mayBeOfVersion and
// unreadable). The next watch then begins at the same place, since that is cheap. If it
// fails again and again, the cause may be one event or one version, and a list avoids both.
// So one list is read after four failures, eight, sixteen, and so on.
func (l *link) began(well bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if well {
		l.failures = 0
		return
	}
	l.failures++
	owesRelist := l.state != linkStated && l.state != linkInDoubt
	if l.failures >= 4 && l.failures&(l.failures-1) == 0 && !owesRelist {
		l.set(linkUnreadable)
	}
}

// unlisted: the list that linkUnreadable asks for has failed. The watch is tried again, and
// the next list comes after as many more failures as before. unlisted returns false if
// another reason for a list has come since.
func (l *link) unlisted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state != linkUnreadable {
		return false
	}
	l.set(linkInDoubt)
	return true
}

// relisted: a whole list has been read. Its version is the server's.
func (l *link) relisted() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.set(linkStated)
	l.refused = time.Time{}
}

// refuses: the server has refused a request. lasted is how long it has done nothing else.
func (l *link) refuses() (lasted time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.clock.Now()
	if l.refused.IsZero() {
		l.refused = now
	}
	return now.Sub(l.refused)
}

// answers: the last request was not refused, even if no server answered it.
func (l *link) answers() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refused = time.Time{}
}

// bookmarked: the server has sent a bookmark, of a version that can be
// compared.
func (l *link) bookmarked() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fruitless = 0
}

// fellShort: a short watch has ended in good order without reaching the stated version.
// One that has brought something newer is on its way there; some servers send the same
// events at each watch.
func (l *link) fellShort(onItsWay bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fruitless++; onItsWay {
		l.fruitless = 0
	}
}

// is says whether the link is in the state.
func (l *link) is(state linkState) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == state
}

// reason is why everything must be read before a watch opens, "" if the link
// gives no reason.
func (l *link) reason() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch l.state {
	case linkRestored:
		return ReasonRestored
	case linkExpired:
		return ReasonExpired
	case linkUnreadable:
		return ReasonUnreadable
	case linkDisproved:
		return ReasonDiffers
	}
	return ""
}

// bookmarkless says whether short watches are useless.
func (l *link) bookmarkless() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fruitless >= fruitlessWatches
}

// isRefused says whether the server's last answer was a refusal.
func (l *link) isRefused() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.refused.IsZero()
}

// doubtedAt is when linkStated was last left.
func (l *link) doubtedAt() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.doubted
}
