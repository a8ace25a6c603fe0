package informer

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/kubewake/kubewake/informer/internal/durable"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// Reset is the type of an event that tells a durable handler to start over:
// what it has been told is of another cluster, or part of what it had to be
// told was damaged. It is told alone: nothing follows before it is
// acknowledged; then every object that there is, as Added.
const Reset = durable.Reset

// Event is what a durable handler is told.
type Event struct {
	// Type is cache.Added, cache.Updated, cache.Deleted or Reset.
	Type cache.DeltaType
	// Key of the object, "" for a Reset.
	Key string
	// Object after the change; for a delete its final state, or a
	// cache.DeletedFinalStateUnknown with the last known one. It is shared and
	// must not be modified.
	Object any
	// Seq of the journal entry, the last one of those that were collapsed into it
	// where it is no delete, or up to which an object that is Initial has been
	// changed. Within a key it does not fall, unless events are told again.
	Seq uint64
	// Time of the change's commit, or when the object was stored.
	Time time.Time
	// Initial: the object was there when the handler was first registered, or
	// when it started over.
	Initial bool
	// Attempt counts, from 1 on, the times that the key has been told anew since
	// something of it was acknowledged.
	Attempt int

	old      func() any
	delivery *durable.Delivery
}

// Old is the object before the change, nil unless Type is cache.Updated, or if
// it cannot be read. Where events were collapsed in the file it can be an older
// state than the handler was last told. It is decoded when first asked for,
// which spares those who do not ask. It is shared and must not be modified.
func (e Event) Old() any {
	if e.old == nil {
		return nil
	}
	return e.old()
}

// Ack acknowledges an event for which the handler has returned ErrAckLater, or
// is going to. It may be called from any goroutine, more than once, and after
// the informer has stopped, when it has no effect. It counts once all earlier
// events of the key are acknowledged, too.
func (e Event) Ack() {
	if e.delivery != nil {
		e.delivery.End(nil)
	}
}

// Nack says that such an event could not be dealt with. It and all later events
// of the key that the handler has been told of are told again, after a backoff.
func (e Event) Nack(err error) {
	if e.delivery != nil {
		e.delivery.End(cmp.Or(err, errNack))
	}
}

// ErrAckLater is what a durable handler returns that will call Ack or Nack.
var ErrAckLater = durable.ErrAckLater

var errNack = errors.New("not acknowledged")

// DurableHandler is told of changes, across restarts, until it has acknowledged
// them. Returning nil acknowledges the event, ErrAckLater leaves that to Ack
// and Nack, and after any other error the event is told again, after a backoff;
// other keys do not wait for it, later events of the key do. It is called by
// one goroutine at a time for a key, and by up to DurableOptions.Workers in
// all. ctx ends when the informer does, or the handler is removed.
type DurableHandler interface {
	HandleEvent(ctx context.Context, e Event) error
}

// DurableHandlerFunc is a DurableHandler.
type DurableHandlerFunc func(ctx context.Context, e Event) error

// HandleEvent calls f.
func (f DurableHandlerFunc) HandleEvent(ctx context.Context, e Event) error { return f(ctx, e) }

// DurableOptions of a handler. The zero value is a good default.
type DurableOptions struct {
	// Workers is how many goroutines call the handler, for different keys.
	// Default 1.
	Workers int
	// MaxPending and PendingBytes bound the events that wait in memory for a
	// call, a retry or an acknowledgement. Beyond, no further ones are taken in,
	// which costs disk and holds up nobody else; what waits for a retry, or for
	// longer than StuckAfter for an acknowledgement, is then moved to the file,
	// collapsed for each key, so that other keys go on. Defaults 1024, 8 MiB and
	// 10 s.
	MaxPending   int
	PendingBytes int
	StuckAfter   time.Duration
	// RateLimiter says how long to wait before a key is told again. Default:
	// exponential, from 5 ms to 5 min.
	RateLimiter workqueue.TypedRateLimiter[string]
	// Logger. Default: the informer's.
	Logger *klog.Logger
}

func eventOf(t durable.Telling) Event {
	return Event{Type: t.Type, Key: t.Key, Object: t.Object, Seq: t.Seq, Time: t.Time, Initial: t.Initial, Attempt: t.Attempt,
		old: t.Old, delivery: t.Delivery}
}
