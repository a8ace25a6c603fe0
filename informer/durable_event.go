package informer

import (
	"cmp"
	"context"
	"errors"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubewake/kubewake/boltstore"
)

// Event is what a durable handler is told of a key: its state, not each change.
type Event struct {
	// Reset tells the handler to start over: the file did not know its name, or no longer
	// knows what the handler was told, or another cluster answers. It has no key and no
	// object. Nothing else is told until it is acknowledged, and no call runs beside it.
	// Then every object follows.
	Reset bool
	// Key of the object.
	Key string
	// Deleted has the deletes under the key that the handler has not acknowledged, oldest
	// first. Each has the object's final state, or a cache.DeletedFinalStateUnknown with the
	// last known one. If that cannot be read, it has only its namespace and name. The
	// handler may not have been told of the object. At most eight are kept: the first one
	// and the last ones.
	Deleted []boltstore.Gone
	// Object is the present object, nil if there is none. It is shared, as all objects here
	// are, and must not be modified.
	Object any
	// Old is the same object as the handler acknowledged it last. It is nil where this
	// process no longer has it: it keeps the last 16 keys' objects, and none of a built-in
	// type above 64 KiB.
	Old any
	// Initial says that the key is told for the first time since a Reset.
	Initial bool
	// Seq is the number of the key's last change. It never falls within a key.
	Seq uint64
	// Since is when the key became pending.
	Since time.Time
	// Attempt counts, from 1 on, how often the key has been told since it was last
	// acknowledged.
	Attempt int

	call *durableCall
}

// WithoutObjects returns the event without its objects, for Ack and Nack. A program that
// holds it does not hold the objects in memory.
func (e Event) WithoutObjects() Event {
	e.Deleted, e.Object, e.Old = nil, nil, nil
	return e
}

// Ack acknowledges an event for which the handler returns or has returned ErrAckLater. It
// may be called from any goroutine, at any later time, and more than once. What has changed
// since the event stays pending. After the informer has stopped it has no effect.
func (e Event) Ack() {
	if e.call != nil {
		e.call.d.acknowledge(e.call)
	}
}

// Nack refuses an event for which the handler returns or has returned ErrAckLater, like an
// error that the handler returns: the key is told again after a backoff, unless it has been
// told again since. err says why.
func (e Event) Nack(err error) {
	if e.call != nil {
		e.call.d.fail(e.call, cmp.Or(err, errNack))
	}
}

// ErrAckLater is returned by a durable handler that will call Ack or Nack. If it calls
// neither, the key is told again when it changes, and in the next life.
var ErrAckLater = errors.New("acknowledged later")

var errNack = errors.New("not acknowledged")

// DurableHandler is told pending keys, across restarts, until it has acknowledged them.
// Returning nil acknowledges the event; ErrAckLater leaves that to Ack and Nack. After any
// other error the key is told again after a backoff, as after a call that ends its goroutine
// (runtime.Goexit, t.FailNow), or panics where runtime.ReallyCrash is off. Other keys do not
// wait for that. If the key changes meanwhile, it is told again at once.
//
// The first error of a key and each doubling of its failures is logged, up to a hundred in a
// minute.
//
// One goroutine at a time calls it for a key, and up to DurableOptions.Workers in all. Keys
// that change come before those that were pending at the start and those that failed. ctx
// ends when the informer ends, or the handler is removed. A call that goes on for 100 ms after
// that may overlap with the next informer's, if a manager or a dynamic factory of this
// process has asked for the list again.
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
	// to 5 min. The key of a Reset is "".
	RateLimiter workqueue.TypedRateLimiter[string]
}
