package durable

import (
	"cmp"
	"context"
	"errors"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Reset is the type of a telling that tells the handler to start over.
const Reset cache.DeltaType = "Reset"

// ErrAckLater is returned by a Func that will have Delivery.End called.
var ErrAckLater = errors.New("acknowledged later")

// Func tells the handler. Returning nil acknowledges, ErrAckLater leaves that to
// the delivery, and after any other error the key is told again.
type Func func(ctx context.Context, t Telling) error

// Telling is one call of the handler, with the fields of informer.Event.
type Telling struct {
	Type     cache.DeltaType
	Key      string
	Object   any
	Old      func() any // nil unless Type is cache.Updated
	Seq      uint64
	Time     time.Time
	Initial  bool
	Attempt  int
	Delivery *Delivery
}

// Options of a handler, the same as informer.DurableOptions.
type Options struct {
	Workers      int
	MaxPending   int
	PendingBytes int // see Host.Sharing
	StuckAfter   time.Duration
	RateLimiter  workqueue.TypedRateLimiter[string]
}

func (o Options) withDefaults() Options {
	o.Workers = max(o.Workers, 1)
	o.MaxPending = max(cmp.Or(o.MaxPending, 1024), 1)
	o.PendingBytes = max(cmp.Or(o.PendingBytes, 4<<20), 1)
	o.StuckAfter = max(cmp.Or(o.StuckAfter, 10*time.Second), time.Millisecond)
	if o.RateLimiter == nil {
		o.RateLimiter = workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 5*time.Minute)
	}
	return o
}
