package informer

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// DurableQueue is a workqueue whose work is not forgotten when the process dies. As a
// DurableHandler it adds the items of each event. It acknowledges the event when its
// items are Done, unless an item was asked for again while it was being worked on.
//
// Add, AddAfter and AddRateLimited of an item that is being worked on ask for it again.
// When that work is Done, the last event of each of its keys stays unacknowledged, so that
// a restart of the program brings the item back; older ones are acknowledged. A Reset is
// acknowledged in any case, since nothing else is told before that.
//
// In everything else it is the inner queue, and can be used wherever that can. For
// example, Options.NewQueue of a controller-runtime controller can return one of
// reconcile.Requests.
type DurableQueue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	items func(Event) []T

	mu    sync.Mutex
	state map[T]*queued
}

// queued has the events that are to be acknowledged for one item.
type queued struct {
	waiting []*share // since the item was last taken
	working []*share // before
	taken   bool     // between Get and Done
	again   bool     // asked for while it was taken
}

// share is an event that waits for the work on all its items.
type share struct {
	event Event
	mu    sync.Mutex
	left  int
}

func (s *share) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left--; s.left == 0 {
		s.event.Ack()
	}
}

// NewDurableQueue wraps a queue, for AddDurableHandler. items returns the items to work
// on for an event. If there are none, the event is acknowledged at once. items is also
// called for a Reset, which has no object.
func NewDurableQueue[T comparable](inner workqueue.TypedRateLimitingInterface[T], items func(Event) []T) *DurableQueue[T] {
	return &DurableQueue[T]{TypedRateLimitingInterface: inner, items: items, state: map[T]*queued{}}
}

// HandleEvent implements DurableHandler.
func (q *DurableQueue[T]) HandleEvent(_ context.Context, e Event) error {
	items := q.items(e)
	if len(items) == 0 {
		return nil
	}
	s := &share{event: e.WithoutObjects(), left: len(items)}
	for _, item := range items {
		q.mu.Lock()
		st := q.of(item)
		st.waiting = append(st.waiting, s)
		q.mu.Unlock()
		q.TypedRateLimitingInterface.Add(item)
	}
	return ErrAckLater
}

// of returns an item's state. The caller holds the mutex.
func (q *DurableQueue[T]) of(item T) *queued {
	st := q.state[item]
	if st == nil {
		st = &queued{}
		q.state[item] = st
	}
	return st
}

// Get returns the next item to be worked on.
func (q *DurableQueue[T]) Get() (item T, shutdown bool) {
	item, shutdown = q.TypedRateLimitingInterface.Get()
	if shutdown {
		return item, shutdown
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	st := q.of(item)
	st.working, st.waiting = append(st.working, st.waiting...), nil
	st.taken, st.again = true, false
	return item, false
}

// Done ends the work on an item. It acknowledges the events that the work was for, unless
// the item was asked for again.
func (q *DurableQueue[T]) Done(item T) {
	var done, kept []*share
	q.mu.Lock()
	st := q.of(item)
	if st.again {
		done, st.working = lastOfEach(st.working)
		kept = slices.Clone(st.working)
	} else {
		done, st.working = st.working, nil
	}
	st.taken, st.again = false, false
	if len(st.working) == 0 && len(st.waiting) == 0 {
		delete(q.state, item)
	}
	q.mu.Unlock()
	for _, s := range done {
		s.done()
	}
	for _, s := range kept {
		s.event.Keep()
	}
	q.TypedRateLimitingInterface.Done(item)
}

// lastOfEach separates the last share of each key from those before it. If these were
// kept, too, the key would soon be told nothing more. The share of a Reset, which has no
// key, is not kept: nothing else is told before it is acknowledged.
func lastOfEach(shares []*share) (before, last []*share) {
	later := map[string]bool{}
	for _, s := range slices.Backward(shares) {
		if s.event.Key == "" || later[s.event.Key] {
			before = append(before, s)
		} else {
			last = append(last, s)
		}
		later[s.event.Key] = true
	}
	slices.Reverse(last)
	return before, last
}

func (q *DurableQueue[T]) askAgain(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if st := q.state[item]; st != nil && st.taken {
		st.again = true
	}
}

// Add adds an item.
func (q *DurableQueue[T]) Add(item T) {
	q.askAgain(item)
	q.TypedRateLimitingInterface.Add(item)
}

// AddAfter adds an item after a time.
func (q *DurableQueue[T]) AddAfter(item T, after time.Duration) {
	q.askAgain(item)
	q.TypedRateLimitingInterface.AddAfter(item, after)
}

// AddRateLimited adds an item when the rate limiter says so.
func (q *DurableQueue[T]) AddRateLimited(item T) {
	q.askAgain(item)
	q.TypedRateLimitingInterface.AddRateLimited(item)
}
