package controllerruntime

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubewake/kubewake/informer/internal/workitems"
)

// Work keeps a controller's work in the file until it is done. A key of its sources ([Kind])
// is acknowledged once Reconcile has succeeded for each request that its events led to. After
// a crash, keys that were not acknowledged are told again.
//
// If Reconcile asks for the request again (RequeueAfter), or fails, the keys that led to it
// stay pending. The request then comes back after a restart, as from a stock controller's
// initial list. So requests that are repeated from time to time are repeated in the next
// life, too.
type Work struct {
	name    string
	wrapped atomic.Bool // a controller has the Reconciler

	onReset atomic.Pointer[func(context.Context) error]

	mu    sync.Mutex
	items *requests
	queue workqueue.TypedRateLimitingInterface[reconcile.Request] // of the controller
	// closed when the controller ends; nil before the first
	ended <-chan struct{}
}

// requests are the requests that events wait for.
type requests = workitems.Items[origin, reconcile.Request]

// origin is the object of an event.
type origin struct {
	source any
	key    string
}

// NewWork returns the work of a controller. Its name must be the same in each life of the
// program: it is the name of a durable handler in the file. A new name is told every
// object, so change it if the reconciler should see all objects again. The file goes on
// keeping pending keys for an old name: if names go out of use, set
// boltstore.Options.HandlerAge.
func NewWork(name string) *Work {
	return &Work{name: name, items: workitems.New[origin, reconcile.Request]()}
}

// OnReset sets a function to call when the work begins, for a name that the file does not
// know, and when the file no longer says what the work was told: it was damaged, or another
// cluster answers. Once f has returned nil, every object follows as created. The work may
// never be told of objects that were deleted in between, so f is the place to clean up after
// them. f is called for each source, and again if it fails or if the program ends first. Call
// OnReset before the controller starts. Without it, the log reports the reset.
func (w *Work) OnReset(f func(context.Context) error) { w.onReset.Store(&f) }

// Reconciler returns r with a wrapper that notes which requests r has worked on. Give it
// to the controller in place of r. If one controller has two Works, for example for two
// sources of one type, nest their wrappers.
func (w *Work) Reconciler(r reconcile.Reconciler) reconcile.Reconciler {
	w.wrapped.Store(true)
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (res reconcile.Result, err error) {
		items := w.requests()
		items.Take(req)
		done := false
		defer func() { items.End(req, done) }() // also when r panics
		res, err = r.Reconcile(ctx, req)
		rest := res
		rest.Priority = nil
		done = err == nil && rest.IsZero()
		return res, err
	})
}

func (w *Work) requests() *requests {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.items
}

// begin takes the work for the controller that has the queue.
func (w *Work) begin(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.wrapped.Load() {
		return errNotWrapped
	}
	if w.ended != nil && w.queue != q {
		select {
		case <-w.ended:
		default:
			return errors.New("controllerruntime: a Work is for one controller: make one of its own for the other")
		}
	}
	if w.queue != q {
		w.items = workitems.New[origin, reconcile.Request]() // it is told again what was not done
	}
	w.queue, w.ended = q, ctx.Done()
	return nil
}

var errNotWrapped = errors.New("controllerruntime: nothing would say when the work is done: give the controller " +
	"Work.Reconciler in place of its reconciler")
