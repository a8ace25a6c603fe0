package controllerruntime

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubewake/kubewake/informer/internal/workitems"
)

// recorder is the controller's queue during one call of a handler. It notes which
// requests the event leads to, before the queue has them. Requests that come after the
// call, from a goroutine of the handler's, do not belong to the event.
type recorder struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	items *requests

	mu    sync.Mutex
	event *workitems.Event[origin, reconcile.Request] // nil after the call
}

func newRecorder(
	items *requests, q workqueue.TypedRateLimitingInterface[reconcile.Request],
	e *workitems.Event[origin, reconcile.Request],
) *recorder {
	p, ok := q.(priorityqueue.PriorityQueue[reconcile.Request])
	if !ok {
		p = unordered{q}
	}
	return &recorder{PriorityQueue: p, items: items, event: e}
}

func (r *recorder) note(reqs ...reconcile.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.event == nil {
		return
	}
	for _, req := range reqs {
		r.items.Expect(r.event, req)
	}
}

// close ends the call. It says whether nothing is left to do for the event.
func (r *recorder) close() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.event
	r.event = nil
	return r.items.Close(e)
}

// Add implements workqueue.TypedInterface.
func (r *recorder) Add(req reconcile.Request) {
	r.note(req)
	r.PriorityQueue.Add(req)
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (r *recorder) AddAfter(req reconcile.Request, after time.Duration) {
	r.note(req)
	r.PriorityQueue.AddAfter(req, after)
}

// AddRateLimited implements workqueue.TypedRateLimitingInterface.
func (r *recorder) AddRateLimited(req reconcile.Request) {
	r.note(req)
	r.PriorityQueue.AddRateLimited(req)
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (r *recorder) AddWithOpts(o priorityqueue.AddOpts, reqs ...reconcile.Request) {
	r.note(reqs...)
	r.PriorityQueue.AddWithOpts(o, reqs...)
}

// unordered is a queue without priorities.
type unordered struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func (u unordered) AddWithOpts(o priorityqueue.AddOpts, reqs ...reconcile.Request) {
	for _, req := range reqs {
		switch {
		case o.RateLimited:
			u.AddRateLimited(req)
		case o.After > 0:
			u.AddAfter(req, o.After)
		default:
			u.Add(req)
		}
	}
}

func (u unordered) GetWithPriority() (reconcile.Request, int, bool) {
	req, shutdown := u.Get()
	return req, 0, shutdown
}
