package reflector

import (
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
)

// audit says when all objects are compared with a list. That finds what the watch has left
// out, and a server that was restored to an earlier state and has since overtaken the file's
// version, as if nothing had happened.
type audit struct {
	every time.Duration // a random part of Options.AuditEvery; zero or less: never
	store *boltstore.Claimed
	clock clock.PassiveClock

	mu        sync.Mutex
	read      time.Time // when all objects were last compared in this life
	asked     bool      // for an audit, since then
	notBefore time.Time // when a relist that can be put off may be tried again
}

// compared: all objects have been compared with a list.
func (a *audit) compared() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read, a.asked = a.clock.Now(), false
}

// Audit asks for an audit now, also where there are none by themselves. It comes once the
// source is live, unless a list is compared before. State says when that was, and how many
// objects differed.
func (s *Reflector) Audit() {
	s.audit.mu.Lock()
	s.audit.asked = true
	s.audit.mu.Unlock()
	s.fresh.nudge()
}

// auditAfter draws how long after a comparison the source is audited: the audits of many
// programs that began together do not come together.
func auditAfter(most time.Duration) time.Duration {
	if most <= 0 {
		return 0
	}
	return most/2 + rand.N(most/2+1)
}

// in is how long it is until everything is to be compared. ok says whether it ever is. If
// the time of the last comparison is unknown, it is due now.
func (a *audit) in() (d time.Duration, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	switch age := a.store.State().ComparedAge; {
	case a.asked:
	case a.every <= 0:
		return 0, false
	case !a.read.IsZero():
		d = a.every - now.Sub(a.read)
	case age != nil:
		d = a.every - *age
	}
	return max(d, a.notBefore.Sub(now)), true
}

// postponed is how long a failed relist that nothing depends on is not tried again.
const postponed = 5 * time.Minute

// postpone puts off relists that nothing depends on.
func (a *audit) postpone() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.notBefore = a.clock.Now().Add(postponed)
}

// putOff is how long such relists are still put off, zero or less if not.
func (a *audit) putOff() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.notBefore.Sub(a.clock.Now())
}
