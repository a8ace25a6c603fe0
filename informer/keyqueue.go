package informer

import (
	"errors"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
)

// aheadOfAck is how many events of one key are told before the first of them is
// acknowledged; further ones are collapsed while it is stuck.
const aheadOfAck = 16

// keyQueue has what is unacknowledged of one key, in order. All of it is
// guarded by the durable's mutex.
type keyQueue struct {
	key     string
	tasks   []*task
	told    int       // tasks that have been told and not acknowledged
	turn    int       // counts how often telling began anew
	since   time.Time // when the oldest of them was
	reached uint64    // seq up to which a call has been begun
	busy    bool      // the handler is being called
	ready   bool      // in the list of those to be told
	again   bool      // to be told anew after a backoff
	waiting bool      // in the backoff
	loading bool      // what is parked of it is being read
	failed  int       // how often since the last acknowledgement
	dropped bool      // of before a reset
}

// add appends a task. The caller holds the mutex.
func (d *durable) add(key string, t *task) {
	q := d.keys[key]
	if q == nil {
		q = &keyQueue{key: key}
		d.keys[key] = q
	}
	q.tasks = append(q.tasks, t)
	d.hold(t, 1)
	if n := len(q.tasks) - q.told; n > aheadOfAck && (q.failed > 0 || q.told >= aheadOfAck) {
		d.collapse(q)
	}
	d.schedule(q)
}

// hold counts what is in memory.
func (d *durable) hold(t *task, n int) {
	if t.entry != nil {
		d.held += n
		d.bytes += n * t.size()
	}
}

// untold is where the tasks begin that no call has been begun for.
func (q *keyQueue) untold() int {
	if q.busy {
		return q.told + 1
	}
	return q.told
}

// collapse makes few of the entries that wait behind a key that is stuck. Those
// from the file's parked stay as they are.
func (d *durable) collapse(q *keyQueue) {
	from := len(q.tasks)
	for from > q.untold() && q.tasks[from-1].first > 0 && !q.tasks[from-1].parking && !q.tasks[from-1].added {
		from--
	}
	tail := q.tasks[from:]
	if len(tail) < 2 {
		return
	}
	var entries []*boltstore.Entry
	for _, t := range tail {
		entries = append(entries, t.entry)
		d.hold(t, -1)
	}
	first, last := tail[0].first, tail[len(tail)-1].last
	q.tasks = q.tasks[:from:from]
	for _, t := range group(boltstore.Collapse(entries, max(d.known, q.reached)), last) {
		t.first = first
		q.tasks = append(q.tasks, t)
		d.hold(t, 1)
	}
}

// group makes tasks of entries that are settled together, up to last.
func group(entries []*boltstore.Entry, last uint64) (tasks []*task) {
	for i, e := range entries {
		t := &task{entry: e, seq: e.Seq, last: last, more: i < len(entries)-1}
		if t.more && entries[i+1].Seq <= t.seq {
			t.seq = 0 // that of what follows: its own is not known
		}
		tasks = append(tasks, t)
	}
	return tasks
}

// next is what a key is to be told now, nil if nothing.
func (q *keyQueue) next() *task {
	if q.busy || q.waiting || q.loading || q.again || q.dropped || q.told == len(q.tasks) || q.told >= aheadOfAck {
		return nil
	}
	return q.tasks[q.told]
}

// schedule makes a key ready if it has something to be told.
func (d *durable) schedule(q *keyQueue) {
	t := q.next()
	if q.ready || t == nil {
		return
	}
	if t.away() {
		q.loading = true
		d.loads = append(d.loads, q)
		d.inf.backlog.Wake()
		return
	}
	q.ready = true
	d.ready = append(d.ready, q)
	d.cond.Signal()
}

// work tells what is ready until the handler is gone.
func (d *durable) work() {
	for {
		d.mu.Lock()
		for len(d.ready) == 0 && d.ctx.Err() == nil {
			d.cond.Wait()
		}
		if d.ctx.Err() != nil {
			d.mu.Unlock()
			return
		}
		q := d.ready[0]
		d.ready = d.ready[1:]
		q.ready = false
		t := q.next()
		if t == nil || t.away() { // it was refused, or moved to the file, since it became ready
			d.schedule(q)
			d.mu.Unlock()
			continue
		}
		q.busy = true
		d.calls++
		q.reached = max(q.reached, t.last)
		if q.told == 0 {
			q.since = d.inf.o.Clock.Now()
		}
		attempt := q.failed + 1
		dl := &delivery{d: d, q: q, t: t, turn: q.turn}
		d.mu.Unlock()
		err := d.tell(dl, attempt)
		d.returned(dl, err)
	}
}

// tell calls the handler. An entry that cannot be decoded is not told: its
// source is degraded and will be read anew.
func (d *durable) tell(dl *delivery, attempt int) (err error) {
	t := dl.t
	e := Event{Key: dl.q.key, Attempt: attempt, Initial: t.initial, delivery: dl}
	switch {
	case t.reset:
		e.Type = Reset
	default:
		e.Type, e.Seq, e.Time = t.entry.Type, t.entry.Seq, t.entry.Time
		if t.added {
			e.Type = cache.Added
		}
		if e.Object, err = t.entry.Object(); err != nil {
			d.log.Error(err, "An entry cannot be told in full", "source", d.inf.store.Source().String(), "handler", d.name, "key", e.Key)
			if e.Type != cache.Deleted {
				return nil
			}
		}
		if e.Type == cache.Updated {
			e.old = d.previous(t.entry)
		}
	}
	err = errPanicked
	defer utilruntime.HandleCrashWithLogger(d.log)
	return d.handler.HandleEvent(d.ctx, e)
}

// previous decodes the object before a change, when asked.
func (d *durable) previous(e *boltstore.Entry) func() any {
	return func() any {
		old, err := e.Previous()
		if err != nil {
			d.log.Error(err, "The object before a change cannot be told", "source", d.inf.store.Source().String(), "handler", d.name, "key", e.Key)
		}
		return old
	}
}

// errPanicked is what a call returns that did not return, where panics do not
// end the process.
var errPanicked = errors.New("the handler panicked")

// returned notes how a call ended.
func (d *durable) returned(dl *delivery, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := dl.q
	q.busy = false
	d.calls--
	if q.dropped {
		if d.calls == 0 {
			d.inf.backlog.Wake()
		}
		return
	}
	q.told++
	switch {
	case err == nil:
		dl.t.acked = true
	case errors.Is(err, ErrAckLater):
	case d.ctx.Err() != nil: // told again by the next life
	default:
		d.log.V(2).Info("A durable handler failed, it will be told again", "source", d.inf.store.Source().String(), "handler", d.name, "key", q.key, "err", err)
		q.again = true
	}
	d.settle(q)
	d.checkSynced()
}

// end is an Ack or a Nack.
func (d *durable) end(dl *delivery, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := dl.q
	if q.dropped || dl.turn != q.turn || dl.t.acked {
		return // it is being told anew, or settled
	}
	if err != nil {
		q.again = true
	} else {
		dl.t.acked = true
	}
	d.settle(q)
}

// settle takes what is acknowledged off a key's queue, and goes on with it.
func (d *durable) settle(q *keyQueue) {
	n := 0
	for !q.again && n < q.told && q.tasks[n].acked {
		n++
	}
	for _, t := range q.tasks[:n] {
		d.acknowledged(q, t)
	}
	clear(q.tasks[:n])
	q.tasks = q.tasks[n:]
	q.told -= n
	if n > 0 {
		q.since = d.inf.o.Clock.Now()
	}
	if n > 0 && q.failed > 0 {
		q.failed = 0
		d.o.RateLimiter.Forget(q.key)
	}
	if q.again && !q.busy {
		// From the first one that is not acknowledged on, for the order's sake.
		q.again, q.waiting = false, true
		q.failed++
		q.turn++
		q.told = 0
		for _, t := range q.tasks {
			t.acked = false
		}
		d.retryAt(q, d.inf.o.Clock.Now().Add(d.o.RateLimiter.When(q.key)))
	}
	d.schedule(q)
	if len(q.tasks) == 0 && !q.busy && d.keys[q.key] == q {
		delete(d.keys, q.key)
	}
	d.unblock()
}

// unblock goes on with filling once there is room, for an eighth of the bounds
// if these are large: it does not begin anew for each event.
func (d *durable) unblock() {
	if d.blocked && d.alone() {
		d.inf.backlog.Wake()
	}
	if d.blocked && d.held <= d.o.MaxPending-1-d.o.MaxPending/8 && d.bytes < d.o.PendingBytes-d.o.PendingBytes/8 {
		d.blocked = false
		d.inf.backlog.Wake()
	}
}

// acknowledged notes a task that is done.
func (d *durable) acknowledged(q *keyQueue, t *task) {
	d.hold(t, -1)
	switch {
	case t.reset:
		d.resetting = false
		d.inf.backlog.Wake()
	case t.more: // a delete, up to which nothing is left
		d.settled[q.key] = max(d.settled[q.key], t.seq)
	default:
		d.settled[q.key] = max(d.settled[q.key], t.last)
	}
	d.changed()
}

// retryAt tells a key again at a time.
func (d *durable) retryAt(q *keyQueue, at time.Time) {
	d.retries = append(d.retries, retry{q, at})
	select {
	case d.retryWake <- struct{}{}:
	default:
	}
}

type retry struct {
	q  *keyQueue
	at time.Time
}

// retrying makes keys ready again when their backoff is over.
func (d *durable) retrying() {
	for {
		d.mu.Lock()
		now := d.inf.o.Clock.Now()
		var next time.Time
		left := d.retries[:0]
		for _, r := range d.retries {
			switch {
			case r.at.After(now):
			case r.q == nil:
				d.looking = false
				d.inf.backlog.Wake()
				continue
			default:
				r.q.waiting = false
				d.schedule(r.q)
				continue
			}
			if left = append(left, r); next.IsZero() || r.at.Before(next) {
				next = r.at
			}
		}
		d.retries = left
		d.mu.Unlock()
		stop := func() bool { return false }
		var due <-chan time.Time
		if !next.IsZero() {
			timer := d.inf.o.Clock.NewTimer(next.Sub(now))
			due, stop = timer.C(), timer.Stop
		}
		select {
		case <-d.ctx.Done():
			stop()
			return
		case <-d.retryWake:
		case <-due:
		}
		stop()
	}
}
