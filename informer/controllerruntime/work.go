package controllerruntime

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubewake/kubewake/informer"
)

// Work keeps a controller's work in the file until it is done. An event of its sources
// ([Kind]) is acknowledged once Reconcile has succeeded for each request that the event
// led to. After a crash, events that were not acknowledged are told again.
//
// If Reconcile asks for the request again (RequeueAfter), or fails, the last event of
// each object stays unacknowledged. The request then comes back after a restart, as from a
// stock controller's initial list. So requests that are repeated from time to time are
// repeated in the next life, too.
type Work struct {
	name    string
	wrapped atomic.Bool // a controller has the Reconciler

	onReset atomic.Pointer[func(context.Context) error]

	mu      sync.Mutex
	waiting map[reconcile.Request][]*share
	queue   workqueue.TypedRateLimitingInterface[reconcile.Request] // of the controller
	ended   <-chan struct{}                                         // closed when the controller ends; nil before the first
}

// NewWork returns the work of a controller. Its name must be the same in each life of the
// program: it is the name of a durable handler in the file. A new name is told every
// object, so change it if the reconciler should see all objects again. The file goes on
// keeping changes for an old name: if names go out of use, set boltstore.Options.HandlerAge.
func NewWork(name string) *Work {
	return &Work{name: name, waiting: map[reconcile.Request][]*share{}}
}

// OnReset sets a function to call when the file no longer says what the work was told: it
// was damaged, or another cluster answers. Once f has returned nil, every object follows
// as created. The work may never be told of objects that were deleted in between, so f is
// the place to clean up after them. f is called for each source, and again if it fails or
// if the program ends first. Call OnReset before the controller starts. Without it, the
// log reports the reset.
func (w *Work) OnReset(f func(context.Context) error) { w.onReset.Store(&f) }

// Reconciler returns r with a wrapper that notes which requests r has worked on. Give it
// to the controller in place of r. If one controller has two Works, for example for two
// sources of one type, nest their wrappers.
func (w *Work) Reconciler(r reconcile.Reconciler) reconcile.Reconciler {
	w.wrapped.Store(true)
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (res reconcile.Result, err error) {
		shares := w.take(req)
		done := false
		defer func() { w.end(req, shares, done) }() // also when r panics
		res, err = r.Reconcile(ctx, req)
		rest := res
		rest.Priority = nil
		done = err == nil && rest.IsZero()
		return res, err
	})
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
		w.waiting = map[reconcile.Request][]*share{} // it is told again what was not done
	}
	w.queue, w.ended = q, ctx.Done()
	return nil
}

// take returns the events that led to a request. All that r reads from here on includes
// them.
func (w *Work) take(req reconcile.Request) []*share {
	w.mu.Lock()
	defer w.mu.Unlock()
	shares := w.waiting[req]
	delete(w.waiting, req)
	return shares
}

func (w *Work) end(req reconcile.Request, shares []*share, done bool) {
	var kept []*share
	if !done {
		w.mu.Lock()
		shares, kept = lastOfEach(append(shares, w.waiting[req]...))
		if len(kept) > 0 {
			w.waiting[req] = kept
		}
		w.mu.Unlock()
	}
	for _, s := range shares {
		s.done()
	}
	for _, s := range kept {
		s.event.Keep()
	}
}

// lastOfEach separates the last event of each object from those before it. If these were
// kept, too, the object's key would soon be told nothing more, and the kept events would
// grow without bound.
func lastOfEach(shares []*share) (before, last []*share) {
	later := map[origin]bool{}
	for _, s := range slices.Backward(shares) {
		if later[s.origin] {
			before = append(before, s)
		} else {
			last = append(last, s)
		}
		later[s.origin] = true
	}
	slices.Reverse(last)
	return before, last
}

// expect notes that a request comes from an event.
func (w *Work) expect(req reconcile.Request, s *share) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting[req] = append(w.waiting[req], s)
}

var errNotWrapped = errors.New("controllerruntime: nothing would say when the work is done: give the controller Work.Reconciler in place of its reconciler")

// origin is the object of an event.
type origin struct {
	source any
	key    string
}

// share is an event that waits for the work on its requests.
type share struct {
	origin origin
	event  informer.Event
	left   atomic.Int64 // requests, and one until the handler has returned
}

func newShare(o origin, e informer.Event) *share {
	s := &share{origin: o, event: e.WithoutObjects()}
	s.left.Store(1)
	return s
}

// done ends the work on one of the event's requests.
func (s *share) done() {
	if s.left.Add(-1) == 0 {
		s.event.Ack()
	}
}

// finished notes that the handler has returned. It says whether nothing is left to do.
func (s *share) finished() bool { return s.left.Add(-1) == 0 }
