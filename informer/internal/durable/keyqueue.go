package durable

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore"
)

// AheadOfAck is how many tasks of one key are told before the first of them is
// acknowledged or kept. Further ones are collapsed while the key is stuck.
const AheadOfAck = 16

// keyQueue has the unacknowledged tasks of one key, in order. The handler's mutex
// guards all of it.
type keyQueue struct {
	key     string
	tasks   []*task
	told    int       // tasks that were told, from the first on
	turn    int       // counts how often telling went back to the first
	since   time.Time // when the first was told, or became the first
	reached uint64    // seq up to which a call has been begun
	busy    bool      // the handler is being called
	ready   bool      // among the keys that are due
	again   bool      // refused: to be told from the first on, after a backoff
	waiting bool      // in the backoff
	loading bool      // its parked entries are being read
	failed  int       // how often since the last acknowledgement
	dropped bool      // by a start-over
	kept    bool      // nobody works on the tasks that were told; see Delivery.Keep
}

// queues has the tasks that were taken in and not acknowledged, by key, and tells them.
// The owner's mutex guards all of it.
type queues struct {
	host  *Host
	name  string
	call  Func
	o     *Options
	log   klog.Logger
	ctx   context.Context // ends when the handler must not be called any more
	owner owner
	mu    *sync.Mutex

	// known is one above the last seq of an earlier life that the handler was
	// registered in, 0 without one.
	known   uint64
	ofKey   map[string]*keyQueue
	due     []*keyQueue // have something to be told
	ready   sync.Cond   // due has one more
	loads   []*keyQueue // to be read from what is parked
	calls   int         // under way
	memory  memory
	retries retries
	looking bool // a look for stuck keys is among the retries
	workers sync.WaitGroup
}

// owner learns what happens to tasks. It is called with the mutex held.
type owner interface {
	acknowledged(key string, t *task)
	returned()        // a call has returned
	kept(q *keyQueue) // it may be moved to the file
}

// reset drops everything. Calls under way go on but do not count.
func (s *queues) reset() {
	for _, q := range s.ofKey {
		q.dropped = true
		s.o.RateLimiter.Forget(q.key)
	}
	s.ofKey, s.due, s.loads = map[string]*keyQueue{}, nil, nil
	s.memory.held, s.memory.bytes = 0, 0
}

// add appends a task. The caller holds the mutex.
func (s *queues) add(key string, t *task) {
	q := s.ofKey[key]
	if q == nil {
		q = &keyQueue{key: key}
		s.ofKey[key] = q
	}
	q.tasks = append(q.tasks, t)
	s.memory.hold(t, 1)
	if n := len(q.tasks) - q.told; n > AheadOfAck && (q.failed > 0 || q.unacked() >= AheadOfAck) {
		s.collapse(q)
	}
	s.schedule(q)
}

// unacked is how many tasks were told ahead of an acknowledgement. Behind a kept task only
// those that are being worked on count: the kept one may never be acknowledged, and the
// key must go on.
func (q *keyQueue) unacked() (n int) {
	if q.told == 0 || !q.tasks[0].kept {
		return q.told
	}
	for _, t := range q.tasks[:q.told] {
		if !t.acked && !t.kept {
			n++
		}
	}
	return n
}

// untold is the index of the first task that no call was begun for.
func (q *keyQueue) untold() int {
	if q.busy {
		return q.told + 1
	}
	return q.told
}

// collapse reduces the entries that wait behind a stuck key to a few. Parked ones stay as
// they are.
func (s *queues) collapse(q *keyQueue) {
	from := len(q.tasks)
	for from > q.untold() && q.tasks[from-1].mergeable() {
		from--
	}
	q.tasks = slices.Concat(q.tasks[:from], s.merge(q, q.tasks[from:]))
}

// merge returns fewer tasks that tell the same as the given consecutive ones of the
// journal.
func (s *queues) merge(q *keyQueue, tasks []*task) []*task {
	if len(tasks) < 2 {
		return tasks
	}
	var entries []*boltstore.Entry
	for _, t := range tasks {
		entries = append(entries, t.entry)
		s.memory.hold(t, -1)
	}
	first, last := tasks[0].first, tasks[len(tasks)-1].last
	tasks = group(boltstore.Collapse(entries, max(s.known, q.reached)), last)
	for _, t := range tasks {
		t.first = first
		s.memory.hold(t, 1)
	}
	return tasks
}

// group makes tasks of entries that are acknowledged together, up to last.
func group(entries []*boltstore.Entry, last uint64) (tasks []*task) {
	for i, e := range entries {
		t := &task{entry: e, seq: e.Seq, last: last, more: i < len(entries)-1}
		if t.more && entries[i+1].Seq <= t.seq {
			t.seq = 0 // the entry has the seq of the next one: its own is not known
		}
		tasks = append(tasks, t)
	}
	return tasks
}

// next is the task to be told now, nil if there is none.
func (q *keyQueue) next() *task {
	if q.busy || q.waiting || q.loading || q.again || q.dropped || q.told == len(q.tasks) || q.unacked() >= AheadOfAck {
		return nil
	}
	return q.tasks[q.told]
}

// schedule makes a key due if it has a task to be told.
func (s *queues) schedule(q *keyQueue) {
	t := q.next()
	if q.ready || t == nil {
		return
	}
	if t.away() {
		q.loading = true
		s.loads = append(s.loads, q)
		s.host.Backlog.Wake()
		return
	}
	q.ready = true
	s.due = append(s.due, q)
	s.ready.Signal()
}

// takeAcked takes acknowledged tasks off a key's queue. If the key was refused, it begins
// the backoff.
func (s *queues) takeAcked(q *keyQueue) {
	n := 0
	for !q.again && n < q.told && q.tasks[n].acked {
		n++
	}
	for _, t := range q.tasks[:n] {
		s.memory.hold(t, -1)
		s.owner.acknowledged(q.key, t)
	}
	clear(q.tasks[:n])
	q.tasks = q.tasks[n:]
	q.told -= n
	if n > 0 {
		q.since, q.kept = s.host.Clock.Now(), false
	}
	if n > 0 && q.failed > 0 {
		q.failed = 0
		s.o.RateLimiter.Forget(q.key)
	}
	if q.again && !q.busy {
		// Begin at the first task that is not acknowledged, to keep the order.
		q.again, q.waiting = false, true
		q.failed++
		q.turn++
		q.told = 0
		for _, t := range q.tasks {
			t.acked, t.kept = false, false
		}
		s.retries.at(s.host.Clock.Now().Add(s.o.RateLimiter.When(q.key)), q)
	}
	s.passKept(q)
	s.schedule(q)
	if len(q.tasks) == 0 && !q.busy && s.ofKey[q.key] == q {
		delete(s.ofKey, q.key)
	}
	s.unblock()
}

// passKept reduces the tasks that were acknowledged behind a kept one to a few, since a
// key can go on for ever in this way. If the key is told again, the few tell the same.
func (s *queues) passKept(q *keyQueue) {
	if q.told < 3 || !q.tasks[0].kept {
		return
	}
	tasks := q.tasks[:1:1]
	for at := 1; at < q.told; {
		end, fewer := at, false
		for end < q.told && q.tasks[end].acked && q.tasks[end].mergeable() {
			end++
		}
		for end > at && q.tasks[end-1].more { // the other tasks of its entries are not acknowledged
			end--
		}
		run := q.tasks[at:max(end, at+1)]
		for _, t := range run[:len(run)-1] {
			fewer = fewer || t.entry.Type != cache.Deleted
		}
		if fewer {
			run = s.merge(q, run)
			for _, t := range run {
				t.acked = true
			}
		}
		tasks = append(tasks, run...)
		at = max(end, at+1)
	}
	told := len(tasks)
	q.tasks, q.told = append(tasks, q.tasks[q.told:]...), told
}
