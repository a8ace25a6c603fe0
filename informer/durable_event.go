package informer

import (
	"cmp"
	"context"
	"errors"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubewake/kubewake/informer/internal/durable"
)

// EventReset is the type of an event that tells a durable handler to start over. Its objects
// were another cluster's, or some changes that it had to be told were damaged.
// Nothing else is told until the handler has acknowledged it. Then every object follows,
// as cache.Added.
const EventReset cache.DeltaType = durable.Reset

// Event is a change that a durable handler is told.
type Event struct {
	// Type is cache.Added, cache.Updated, cache.Deleted or EventReset.
	Type cache.DeltaType
	// Key of the object, "" for a Reset.
	Key string
	// Object after the change. For a delete it is the final state, or a
	// cache.DeletedFinalStateUnknown with the last known one. If that cannot be read, it
	// has only its namespace and name. It is shared and must not be modified.
	Object any
	// Seq is the number of the journal entry, or of the last one if several were
	// collapsed. For an Initial object it is the number of the newest entry when it was
	// read: the object contains its own changes up to there. Within a key Seq never
	// falls, unless events are told again.
	Seq uint64
	// Time is when the change was committed, or the object stored.
	Time time.Time
	// Initial says that the object was there when the handler was first registered, or
	// when it started over. It may also stand for changes that were stored under another
	// Go type or transform.
	Initial bool
	// Attempt counts, from 1 on, how often the key has been told since an event of it was
	// last acknowledged.
	Attempt int

	old      func() any
	delivery *durable.Delivery
}

// Old is the object before the change. It is nil unless Type is cache.Updated, or if the
// object cannot be read. If events were collapsed, it may be older than the state that
// the handler was last told. If it was stored under another transform, the present one
// is applied to it. Old decodes it when called. It is shared and must not be
// modified.
func (e Event) Old() any {
	if e.old == nil {
		return nil
	}
	return e.old()
}

// WithoutObjects returns the event without its objects, for Ack, Nack and Keep. A program
// that holds it does not hold the objects in memory.
func (e Event) WithoutObjects() Event {
	e.Object, e.old = nil, nil
	return e
}

// Ack acknowledges an event for which the handler returns or has returned ErrAckLater. It
// may be called from any goroutine and more than once. After the informer has stopped it
// has no effect. It counts once all earlier events of the key are also acknowledged.
func (e Event) Ack() {
	if e.delivery != nil {
		e.delivery.End(nil)
	}
}

// Nack refuses an event for which the handler returns or has returned ErrAckLater. After
// a backoff, it and all later events of the key that the handler was told are told again.
// err says why. It is logged, in the same way as an error that the handler returns.
func (e Event) Nack(err error) {
	if e.delivery != nil {
		e.delivery.End(cmp.Or(err, errNack))
	}
}

// Keep leaves an event unacknowledged for which the handler has returned ErrAckLater.
// Unless Ack comes after all, the next life is told it again, with the later events of
// its key. This life goes on with those later events. The event then counts no longer
// towards the memory that unacknowledged events may take.
func (e Event) Keep() {
	if e.delivery != nil {
		e.delivery.Keep()
	}
}

// ErrAckLater is returned by a durable handler that will call Ack or Nack.
var ErrAckLater = durable.ErrAckLater

var errNack = errors.New("not acknowledged")

// DurableHandler is told changes, across restarts, until it has acknowledged them.
// Returning nil acknowledges the event; ErrAckLater leaves that to Ack and Nack. After
// any other error the event is told again, after a backoff, as after a call that ends its
// goroutine (runtime.Goexit, t.FailNow), or panics where runtime.ReallyCrash is off. Later
// events of the key wait for that, other keys do not.
//
// One goroutine at a time calls it for a key, and up to DurableOptions.Workers in
// all. ctx ends when the informer ends, or the handler is removed. A call that goes on for
// 100 ms after that may overlap with the next informer's, if a manager or a dynamic factory
// of this process has asked for the list again.
type DurableHandler interface {
	HandleEvent(ctx context.Context, e Event) error
}

// DurableHandlerFunc is a DurableHandler.
type DurableHandlerFunc func(ctx context.Context, e Event) error

// HandleEvent calls f.
func (f DurableHandlerFunc) HandleEvent(ctx context.Context, e Event) error { return f(ctx, e) }

// DurableEventHandler is a handler for AddEventHandler. An *Informer adds it as a durable
// handler of that name; client-go's informers add it as a plain one. So it reaches
// informers that a program has only as an interface, such as those of a manager's cache.
//
// The handler may also have a method DurableDone() <-chan struct{}. Once that channel is
// closed, the next handler of the name takes its place.
type DurableEventHandler interface {
	cache.ResourceEventHandler
	DurableHandler
	DurableName() string
}

// DurableOptions of a handler. The zero value is a good default.
type DurableOptions struct {
	// Workers is how many goroutines call the handler, for different keys. Set it for
	// handlers that wait, for example for a service. Default 1.
	Workers int
	// RateLimiter says how long to wait before a key is told again after an error. Set it
	// if the default would try too often or too seldom. Default: exponential, from 5 ms
	// to 5 min.
	RateLimiter workqueue.TypedRateLimiter[string]

	// maxPending and pendingBytes bound the events that wait in memory for a call, a
	// retry or an acknowledgement. Further ones are read from the file later, which holds
	// up no other handler. At the bound a key that waits for a retry, or has waited
	// stuckAfter for an acknowledgement, is collapsed and moved to the file, so that
	// other keys go on. The informer's durable handlers share pendingBytes. Defaults
	// 1024, 4 MiB and 10 s.
	maxPending   int
	pendingBytes int
	stuckAfter   time.Duration
}

func eventOf(t durable.Telling) Event {
	return Event{Type: t.Type, Key: t.Key, Object: t.Object, Seq: t.Seq, Time: t.Time, Initial: t.Initial, Attempt: t.Attempt,
		old: t.Old, delivery: t.Delivery}
}
