package informer

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/kubewake/kubewake/informer/internal/workitems"
)

// DurableQueue is a workqueue whose work is not forgotten when the process dies. As a
// DurableHandler it adds the items of each event. It acknowledges a key when the items of
// all its events are Done, unless an item was asked for again while it was being worked on.
//
// Add, AddAfter and AddRateLimited of an item that is being worked on ask for it again. When
// that work is Done, the keys that led to the item stay pending, so that a restart of the
// program brings the item back. A Reset is acknowledged in any case, since nothing else is
// told before that.
//
// In everything else it is the inner queue, and can be used wherever that can. For
// example, Options.NewQueue of a controller-runtime controller can return one of
// reconcile.Requests.
type DurableQueue[T comparable] struct {
	workqueue.TypedRateLimitingInterface[T]
	items func(Event) []T
	work  *workitems.Items[string, T]

	mu    sync.Mutex
	taken map[T]bool // between Get and Done; true: asked for again
}

// NewDurableQueue wraps a queue, for AddDurableHandler. items returns the items to work
// on for an event, its deletes included. If there are none, and none of earlier events of the
// key are left, the event is acknowledged at once. items is also called for a Reset, which
// has no object.
func NewDurableQueue[T comparable](
	inner workqueue.TypedRateLimitingInterface[T], items func(Event) []T,
) *DurableQueue[T] {
	return &DurableQueue[T]{
		TypedRateLimitingInterface: inner, items: items, work: workitems.New[string, T](), taken: map[T]bool{},
	}
}

// HandleEvent implements DurableHandler.
func (q *DurableQueue[T]) HandleEvent(_ context.Context, e Event) error {
	items := q.items(e)
	w := q.work.Begin(e.Key, e.Reset, e.WithoutObjects().Ack)
	for _, item := range items {
		q.work.Expect(w, item)
		q.TypedRateLimitingInterface.Add(item)
	}
	if q.work.Close(w) {
		return nil
	}
	return ErrAckLater
}

// Get returns the next item to be worked on.
func (q *DurableQueue[T]) Get() (item T, shutdown bool) {
	item, shutdown = q.TypedRateLimitingInterface.Get()
	if shutdown {
		return item, shutdown
	}
	q.mu.Lock()
	q.taken[item] = false
	q.mu.Unlock()
	q.work.Take(item)
	return item, false
}

// Done ends the work on an item. It acknowledges the events that the work was for, unless
// the item was asked for again.
func (q *DurableQueue[T]) Done(item T) {
	q.mu.Lock()
	again := q.taken[item]
	delete(q.taken, item)
	q.mu.Unlock()
	q.work.End(item, !again)
	q.TypedRateLimitingInterface.Done(item)
}

func (q *DurableQueue[T]) askAgain(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, taken := q.taken[item]; taken {
		q.taken[item] = true
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
