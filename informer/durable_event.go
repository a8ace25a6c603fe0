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

// EventReset is the type of an event that has a durable handler start over: it was
// told of another cluster, or part of what it had to be told was damaged. Nothing
// follows before it is acknowledged. Then every object follows, as cache.Added.
const EventReset cache.DeltaType = durable.Reset

// Event is what a durable handler is told.
type Event struct {
	// Type is cache.Added, cache.Updated, cache.Deleted or EventReset.
	Type cache.DeltaType
	// Key of the object, "" for a Reset.
	Key string
	// Object after the change. For a delete it is the final state, or a
	// cache.DeletedFinalStateUnknown with the last known one. It is shared and
	// must not be modified.
	Object any
	// Seq is the number of the journal entry, of the last one where several were
	// collapsed. For an object that is Initial it is the seq up to which its
	// changes are part of it. Within a key it does not fall, unless events are
	// told again.
	Seq uint64
	// Time of the change's commit, or when the object was stored.
	Time time.Time
	// Initial: the object was there when the handler was first registered, or
	// when it started over.
	Initial bool
	// Attempt counts, from 1 on, how often the key has been told since one of its
	// events was acknowledged.
	Attempt int

	old      func() any
	delivery *durable.Delivery
}

// Old is the object before the change. It is nil unless Type is cache.Updated,
// and if it cannot be read. Where events were collapsed it can be an older state
// than the handler was last told. It is decoded when Old is called. It is shared
// and must not be modified.
func (e Event) Old() any {
	if e.old == nil {
		return nil
	}
	return e.old()
}

// WithoutObjects is the event for Ack, Nack and Keep: a program that holds it does not
// hold the objects in memory.
func (e Event) WithoutObjects() Event {
	e.Object, e.old = nil, nil
	return e
}

// Ack acknowledges an event for which the handler has returned ErrAckLater, or
// is going to. It may be called from any goroutine and more than once; it has no
// effect after the informer has stopped. It counts once all earlier events of the
// key are acknowledged, too.
func (e Event) Ack() {
	if e.delivery != nil {
		e.delivery.End(nil)
	}
}

// Nack refuses an event for which the handler has returned ErrAckLater, or is going to.
// It and all later events of the key that the handler was told are told again, after a
// backoff. err says why; it is logged, as an error that the handler returns is.
func (e Event) Nack(err error) {
	if e.delivery != nil {
		e.delivery.End(cmp.Or(err, errNack))
	}
}

// Keep leaves an event for which the handler has returned ErrAckLater as it is: the next life is told it and what follows of its
// key, unless Ack comes after all. Later events of the key are told meanwhile. Its memory
// can be given to other events at once.
func (e Event) Keep() {
	if e.delivery != nil {
		e.delivery.Keep()
	}
}

// ErrAckLater is what a durable handler returns that will call Ack or Nack.
var ErrAckLater = durable.ErrAckLater

var errNack = errors.New("not acknowledged")

// DurableHandler is told changes, across restarts, until it has acknowledged
// them. Returning nil acknowledges the event; ErrAckLater leaves that to Ack and
// Nack. After any other error the event is told again, after a backoff; later
// events of the key wait for that, other keys do not.
//
// One goroutine at a time calls it for a key, and up to DurableOptions.Workers in
// all. ctx ends when the informer ends, or the handler is removed.
type DurableHandler interface {
	HandleEvent(ctx context.Context, e Event) error
}

// DurableHandlerFunc is a DurableHandler.
type DurableHandlerFunc func(ctx context.Context, e Event) error

// HandleEvent calls f.
func (f DurableHandlerFunc) HandleEvent(ctx context.Context, e Event) error { return f(ctx, e) }

// DurableEventHandler is a handler that AddEventHandler adds as a durable handler of that
// name, if the informer is an *Informer; client-go's informers add it as a plain one.
// So it reaches informers that a program has only as an interface, such as those of a
// manager's cache.
type DurableEventHandler interface {
	cache.ResourceEventHandler
	DurableHandler
	DurableName() string
}

// DurableOptions of a handler. The zero value is a good default.
type DurableOptions struct {
	// Workers is set for handlers that wait, say for a service: how many goroutines call
	// the handler, for different keys. Default 1.
	Workers int
	// RateLimiter is set where the default would try too often, or too seldom, after an
	// error: how long to wait before a key is told again. Default: exponential, from
	// 5 ms to 5 min.
	RateLimiter workqueue.TypedRateLimiter[string]

	// maxPending and pendingBytes bound the events that wait in memory for a call, a
	// retry or an acknowledgement. Further ones are read from the file later, which
	// holds up nobody else. Then a key that waits for a retry, or for an
	// acknowledgement for stuckAfter, is moved to the file, collapsed, so that other
	// keys go on. The informer's durable handlers share pendingBytes. Defaults 1024,
	// 4 MiB and 10 s.
	maxPending   int
	pendingBytes int
	stuckAfter   time.Duration
}

func eventOf(t durable.Telling) Event {
	return Event{Type: t.Type, Key: t.Key, Object: t.Object, Seq: t.Seq, Time: t.Time, Initial: t.Initial, Attempt: t.Attempt,
		old: t.Old, delivery: t.Delivery}
}
