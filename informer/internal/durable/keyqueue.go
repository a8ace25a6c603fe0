package durable

import (
	"sync"
	"time"

	"github.com/kubewake/kubewake/boltstore"
)

// AheadOfAck is how many events of one key are told before the first of them is
// acknowledged; further ones are collapsed while it is stuck.
const AheadOfAck = 16

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

// queues has what was taken in and not acknowledged, by key.
type queues struct {
	ofKey map[string]*keyQueue
	due   []*keyQueue // have something to be told
	ready sync.Cond   // due has one more
	loads []*keyQueue // to be read from what is parked
	calls int         // under way
}

// add appends a task. The caller holds the mutex.
func (d *Handler) add(key string, t *task) {
	q := d.queues.ofKey[key]
	if q == nil {
		q = &keyQueue{key: key}
		d.queues.ofKey[key] = q
	}
	q.tasks = append(q.tasks, t)
	d.hold(t, 1)
	if n := len(q.tasks) - q.told; n > AheadOfAck && (q.failed > 0 || q.told >= AheadOfAck) {
		d.collapse(q)
	}
	d.schedule(q)
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
func (d *Handler) collapse(q *keyQueue) {
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
	for _, t := range group(boltstore.Collapse(entries, max(d.pos.known, q.reached)), last) {
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
	if q.busy || q.waiting || q.loading || q.again || q.dropped || q.told == len(q.tasks) || q.told >= AheadOfAck {
		return nil
	}
	return q.tasks[q.told]
}

// schedule makes a key ready if it has something to be told.
func (d *Handler) schedule(q *keyQueue) {
	t := q.next()
	if q.ready || t == nil {
		return
	}
	if t.away() {
		q.loading = true
		d.queues.loads = append(d.queues.loads, q)
		d.host.Backlog.Wake()
		return
	}
	q.ready = true
	d.queues.due = append(d.queues.due, q)
	d.queues.ready.Signal()
}

// settle takes what is acknowledged off a key's queue, and goes on with it.
func (d *Handler) settle(q *keyQueue) {
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
		q.since = d.host.Clock.Now()
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
		d.retryAt(q, d.host.Clock.Now().Add(d.o.RateLimiter.When(q.key)))
	}
	d.schedule(q)
	if len(q.tasks) == 0 && !q.busy && d.queues.ofKey[q.key] == q {
		delete(d.queues.ofKey, q.key)
	}
	d.unblock()
}

// acknowledged notes a task that is done.
func (d *Handler) acknowledged(q *keyQueue, t *task) {
	d.hold(t, -1)
	switch {
	case t.reset:
		d.over.acknowledge()
		d.host.Backlog.Wake()
	case t.more: // a delete, up to which nothing is left
		d.pos.settled[q.key] = max(d.pos.settled[q.key], t.seq)
	default:
		d.pos.settled[q.key] = max(d.pos.settled[q.key], t.last)
	}
	d.changed()
}
