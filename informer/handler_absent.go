package informer

import (
	"context"
	"math"
	"slices"
	"time"

	"k8s.io/utils/clock"
)

// A handler may be removed because the process ends, and the next life may have another
// in its place. So a removed handler holds the told mark where it stopped, until the life
// has gone on without it for the grace of 30 s. Each life begins with such an absent
// handler, the one that is still to be added, unless the source never had a plain
// handler.

// absent is a handler that was removed, or is still to come.
type absent struct {
	l  *listener
	at time.Time // zero: before the start
}

// noteTold moves the told mark to the lowest cursor of all plain handlers, including
// those that were removed not long ago.
func (inf *Informer) noteTold() {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	told := inf.backlog.Last()
	for l := range inf.listeners {
		told = min(told, l.cursor.Load())
	}
	for _, r := range inf.absent {
		told = min(told, r.l.cursor.Load())
	}
	inf.toldNow = max(inf.toldNow, told)
	inf.store.Delivery.SetTold(inf.toldNow)
}

// expectHandler holds the told mark for the first handler to come, if the source ever had
// a plain one.
func (inf *Informer) expectHandler() {
	if !inf.store.Delivery.AwaitsPlain() {
		return
	}
	l := &listener{inf: inf}
	l.cursor.Store(inf.toldAtStart)
	inf.absent = []absent{{l: l}}
}

// handlerCame drops the handler that expectHandler put in. The caller holds the mutex.
func (inf *Informer) handlerCame() {
	if len(inf.absent) > 0 && inf.absent[0].l.handler == nil {
		inf.absent = inf.absent[1:]
	}
}

// holdFor has a handler that was removed hold the told mark. The caller holds
// the mutex.
func (inf *Informer) holdFor(l *listener) {
	r := absent{l: l}
	if inf.running != nil {
		r.at = inf.o.clock.Now()
	}
	inf.compactAbsent()
	inf.absent = append(inf.absent, r)
	select {
	case inf.parted <- struct{}{}:
	default:
	}
}

// compactAbsent drops removed handlers that hold no more than a later one. So handlers
// that come and go before the sync do not add up. The caller holds the mutex.
func (inf *Informer) compactAbsent() {
	held := uint64(math.MaxUint64)
	for i, r := range slices.Backward(inf.absent) {
		select {
		case <-r.l.ended: // its cursor stays
			if at := r.l.cursor.Load(); at < held {
				held = at
			} else {
				inf.absent = slices.Delete(inf.absent, i, i+1)
			}
		default:
		}
	}
}

// forgetAbsent lets the told mark go past removed handlers once their time is over.
// It is called after the sync, and returns when ctx ends.
func (inf *Informer) forgetAbsent(ctx context.Context) {
	for synced := inf.o.clock.Now(); ctx.Err() == nil; {
		next, due := inf.forgetDue(synced)
		inf.noteTold()
		var timer clock.Timer
		var ticks <-chan time.Time
		if due {
			timer = inf.o.clock.NewTimer(next)
			ticks = timer.C()
		}
		select {
		case <-ctx.Done():
		case <-inf.parted:
		case <-ticks:
		}
		if due {
			timer.Stop()
		}
	}
}

// forgetDue drops the removed handlers whose time is over. It says how long the next
// one has left, if there is one.
func (inf *Informer) forgetDue(synced time.Time) (next time.Duration, more bool) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	for len(inf.absent) > 0 {
		since := inf.absent[0].at
		if since.Before(synced) {
			since = synced
		}
		if next = inf.o.handlerGrace - inf.o.clock.Since(since); next > 0 {
			return next, true
		}
		inf.absent = inf.absent[1:]
	}
	return 0, false
}
