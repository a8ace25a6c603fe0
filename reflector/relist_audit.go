package reflector

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
)

// audit finds a server that was restored to an earlier state and has since overtaken the
// file's version, as if nothing had happened. Two things reveal it: the number of objects
// at the file's version, and a list of all objects.
type audit struct {
	every    time.Duration // a random part of Options.AuditEvery; zero or less: never
	requests *requests
	queue    *fifo.Queue
	store    *boltstore.Claimed
	log      klog.Logger
	clock    clock.PassiveClock

	mu        sync.Mutex
	counted   bool      // the server's number of objects has been compared since the last outage
	countDue  bool      // it is time to compare it
	countless bool      // the number is useless
	read      time.Time // when all objects were last compared in this life
	notBefore time.Time // when a relist that can be put off may be tried again
}

// endedLong: a long watch has ended in order, which is a good moment to count.
func (a *audit) endedLong() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.countDue = !a.counted && !a.countless
}

// outage: the server could not be reached. When it is back, it may be another one.
func (a *audit) outage() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counted, a.countDue = false, false
}

// another: another cluster answers, whose numbers may be useful.
func (a *audit) another() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counted, a.countDue, a.countless = false, false, false
}

// compared: all objects have been compared with a list.
func (a *audit) compared() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read = a.clock.Now()
}

// miscounted asks the server, once after each outage, how many objects there were at the
// file's version. If the number differs from the file's, that version is not the same
// state to both.
func (a *audit) miscounted(ctx context.Context) (bool, error) {
	a.mu.Lock()
	due := a.countDue
	a.countDue = false
	a.mu.Unlock()
	if !due {
		return false, nil
	}
	differs, err := a.differs(ctx)
	if err != nil {
		return false, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.counted = true
	if a.store.Countless() { // as an earlier life found
		a.countless = differs
		a.noteCountless(differs)
		return false, nil
	}
	return differs, nil
}

// noteCountless tells the next life whether numbers are useless.
func (a *audit) noteCountless(countless bool) {
	if err := a.store.NoteCountless(countless); err != nil {
		a.log.V(1).Info("It could not be noted whether numbers of objects are of use", "source", a.store.Source().String(), "err", err)
	}
}

// differs says whether the server counts another number of objects at the file's
// version. It is false if the server does not say.
func (a *audit) differs(ctx context.Context) (bool, error) {
	a.queue.DropHeld()
	if err := a.queue.Flush(ctx); err != nil {
		return false, err
	}
	rv := a.queue.AcceptedVersion()
	if !ordered(a.queue) {
		return false, nil // no number: the server refuses to tell it
	}
	if _, failed := a.queue.Failed(); failed != nil || a.store.UnstoredObjects() > 0 {
		return false, nil // some could not be stored
	}
	list, err := a.requests.list(ctx, a.requests.short(), metav1.ListOptions{
		Limit: 1, ResourceVersion: rv, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	if err != nil {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		return false, nil // forgotten, or not understood: the watch goes on
	}
	m, err := meta.ListAccessor(list)
	if err != nil || m.GetResourceVersion() != rv {
		return false, nil
	}
	n := int64(meta.LenList(list))
	switch rest := m.GetRemainingItemCount(); {
	case rest != nil:
		n += *rest
	case m.GetContinue() != "":
		return false, nil // a selection is not counted
	}
	return n != int64(a.store.State().Objects), nil
}

// recount finds out whether a relist has made the numbers equal. If not, the list
// function leaves objects out, and numbers mean nothing.
func (a *audit) recount(ctx context.Context) error {
	differs, err := a.differs(ctx)
	if err != nil || !differs {
		return err
	}
	a.mu.Lock()
	a.countless = true
	a.mu.Unlock()
	a.noteCountless(true)
	a.log.Info("The server counts objects that it does not list; numbers are not compared any more", "source", a.store.Source().String())
	return nil
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
	if a.every <= 0 {
		return 0, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	now := a.clock.Now()
	if !a.read.IsZero() {
		d = a.every - now.Sub(a.read)
	} else if age := a.store.State().ComparedAge; age != nil {
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
