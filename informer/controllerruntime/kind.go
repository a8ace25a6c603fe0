package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
)

// Kind is source.Kind, but its work is durable. After a start the handler gets the keys
// that have not been acknowledged, deletes included. If the file does not know the work's
// name, the handler gets every object, as in an initial list. If the file has lost what
// the work was told, it also gets every object; see [Work.OnReset].
//
// Handler and predicates get each unacknowledged delete of a key, and then the present
// object: as an update from the object that was acknowledged last where this process still
// has that (see informer.Event.Old), otherwise as a create. So a predicate that compares
// the two objects lets some changes pass that it would drop in a stock controller.
//
// There are no resyncs (cache.Options.SyncPeriod): return a
// RequeueAfter for objects that should be looked at from time to time. If the cache has
// the objects in memory only (see informer.ForControllerRuntime), the source is no more
// durable than source.Kind, and the log says so.
//
// A replica that waits for its lease has not told its file the work's name yet. If it wins the
// lease for the first time, it gets every object, but no earlier delete. With
// controller.Options.EnableWarmup it also gets what was deleted while it waited.
//
// A Work has only one source of each type and list. If a controller ends while the cache
// goes on, another one can begin with a Work of that name. It gets what the first one had
// not finished.
func Kind[object client.Object](w *Work, c cache.Cache, obj object,
	h handler.TypedEventHandler[object, reconcile.Request],
	predicates ...predicate.TypedPredicate[object]) source.SyncingSource {
	return &kind[object]{work: w, cache: c, obj: obj, handler: h, predicates: predicates,
		started: make(chan error, 1), cancel: func() {}}
}

// For is a Kind in place of a builder's For: it makes a request for each object.
func For[object client.Object](
	w *Work, c cache.Cache, obj object, predicates ...predicate.TypedPredicate[object],
) source.SyncingSource {
	return Kind(w, c, obj, &handler.TypedEnqueueRequestForObject[object]{}, predicates...)
}

type kind[object client.Object] struct {
	work       *Work
	cache      cache.Cache
	obj        object
	handler    handler.TypedEventHandler[object, reconcile.Request]
	predicates []predicate.TypedPredicate[object]

	started chan error // gets one, and is closed
	mu      sync.Mutex
	begun   bool
	cancel  context.CancelFunc // ends the source
}

// String names the source in controller-runtime's log.
func (k *kind[object]) String() string { return fmt.Sprintf("durable kind source: %T", k.obj) }

// Start implements source.Source.
func (k *kind[object]) Start(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	switch {
	case isNil(k.work), isNil(k.cache), isNil(k.obj), isNil(k.handler):
		return errors.New("controllerruntime: Kind needs a Work, a cache, an object and a handler")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.begun {
		return errors.New("controllerruntime: a source is for one controller: make another one")
	}
	ctx, cancel := context.WithCancel(ctx)
	if err := k.work.begin(ctx, q); err != nil {
		cancel()
		return err
	}
	k.begun, k.cancel = true, cancel
	go func() {
		defer close(k.started)
		k.started <- k.start(ctx, q)
	}()
	return nil
}

func (k *kind[object]) start(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	l := log.FromContext(ctx).WithValues("work", k.work.name, "type", fmt.Sprintf("%T", k.obj))
	var inf cache.Informer
	var last error
	// The type may not be installed yet.
	if err := wait.PollUntilContextCancel(ctx, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		if inf, last = k.cache.GetInformer(ctx, k.obj, cache.BlockUntilSynced(false)); last != nil {
			l.Error(last, "The cache has no informer for a durable source yet")
		}
		return last == nil, nil
	}); err != nil {
		return fmt.Errorf("controllerruntime: no informer: %w", errors.Join(err, last))
	}
	t := &teller[object]{kind: k, ctx: ctx, queue: q, items: k.work.requests(), origin: new(byte)}
	t.plain = func() {
		l.Error(nil, "The work of a source is not durable, since the cache keeps its objects in memory only")
	}
	_, err := inf.AddEventHandlerWithOptions(t, toolscache.HandlerOptions{Logger: &l})
	if errors.Is(err, boltstore.ErrClaimed) {
		return fmt.Errorf("controllerruntime: %w; a second source of one type needs a Work of its own (see "+
			"Work.Reconciler)", err)
	}
	if err != nil {
		return fmt.Errorf("controllerruntime: %w", err)
	}
	if !k.cache.WaitForCacheSync(ctx) && ctx.Err() == nil {
		return errors.New("controllerruntime: the cache did not sync")
	}
	return nil
}

// WaitForSync implements source.SyncingSource: it waits for the cache. It does not wait
// until the handler was told everything, which takes acknowledgements. If it fails, the
// source ends: so does the controller, and another one may begin with its Work.
func (k *kind[object]) WaitForSync(ctx context.Context) error {
	select {
	case err := <-k.started:
		if err != nil {
			k.cancel()
		}
		return err
	case <-ctx.Done():
		k.cancel()
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil
		}
		return fmt.Errorf("controllerruntime: timed out waiting for the cache to sync for %s", k)
	}
}

// teller hands events to the handler, for each informer of the cache. It is an
// informer.DurableEventHandler.
type teller[object client.Object] struct {
	*kind[object]
	ctx    context.Context // of the controller
	queue  workqueue.TypedRateLimitingInterface[reconcile.Request]
	items  *requests
	origin any // tells the objects of one source from those of another

	plain  func() // says that the source is not durable
	warned atomic.Bool
}

var _ informer.DurableEventHandler = &teller[client.Object]{}

// DurableName implements informer.DurableEventHandler.
func (t *teller[object]) DurableName() string { return t.work.name }

// DurableDone is closed when the controller has ended. Another one may then have the name.
func (t *teller[object]) DurableDone() <-chan struct{} { return t.ctx.Done() }

// HandleEvent implements informer.DurableHandler.
func (t *teller[object]) HandleEvent(ctx context.Context, e informer.Event) error {
	if e.Reset { // every object follows
		log.FromContext(t.ctx).Info("The work starts over, since the file does not say what it was told; deletes "+
			"may have been missed",
			"work", t.work.name, "type", fmt.Sprintf("%T", t.obj))
		if f := t.work.onReset.Load(); f != nil && *f != nil {
			return (*f)(ctx)
		}
		return nil
	}
	r := newRecorder(t.items, t.queue, t.items.Begin(origin{t.origin, e.Key}, false, e.WithoutObjects().Ack))
	t.tell(e, r)
	if r.close() {
		return nil // there is nothing to do for it
	}
	return informer.ErrAckLater
}

func (t *teller[object]) tell(e informer.Event, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for _, gone := range e.Deleted {
		obj, final := gone.Object.(object)
		if d, ok := gone.Object.(toolscache.DeletedFinalStateUnknown); ok {
			obj, _ = d.Obj.(object)
		}
		t.deleted(obj, !final, q)
	}
	obj, there := e.Object.(object)
	old, had := e.Old.(object)
	switch {
	case there && had:
		t.updated(old, obj, q)
	case there:
		t.created(obj, e.Initial, q)
	}
}

func (t *teller[object]) created(obj object, initial bool, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	e := event.TypedCreateEvent[object]{Object: obj, IsInInitialList: initial}
	for _, p := range t.predicates {
		if !p.Create(e) {
			return
		}
	}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	t.handler.Create(ctx, e, q)
}

func (t *teller[object]) updated(old, obj object, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	e := event.TypedUpdateEvent[object]{ObjectOld: old, ObjectNew: obj}
	for _, p := range t.predicates {
		if !p.Update(e) {
			return
		}
	}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	t.handler.Update(ctx, e, q)
}

func (t *teller[object]) deleted(obj object, unknown bool, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	e := event.TypedDeleteEvent[object]{Object: obj, DeleteStateUnknown: unknown}
	for _, p := range t.predicates {
		if !p.Delete(e) {
			return
		}
	}
	ctx, cancel := context.WithCancel(t.ctx)
	defer cancel()
	t.handler.Delete(ctx, e, q)
}

// OnAdd, OnUpdate and OnDelete are called by informers that keep their objects in memory.

// OnAdd implements cache.ResourceEventHandler.
func (t *teller[object]) OnAdd(obj any, initial bool) {
	t.warn()
	if o, ok := obj.(object); ok {
		t.created(o, initial, t.queue)
	}
}

// OnUpdate implements cache.ResourceEventHandler.
func (t *teller[object]) OnUpdate(old, obj any) {
	t.warn()
	before, had := old.(object)
	if o, ok := obj.(object); ok && had {
		t.updated(before, o, t.queue)
	}
}

// OnDelete implements cache.ResourceEventHandler.
func (t *teller[object]) OnDelete(obj any) {
	t.warn()
	d, unknown := obj.(toolscache.DeletedFinalStateUnknown)
	if unknown {
		obj = d.Obj
	}
	if o, ok := obj.(object); ok {
		t.deleted(o, unknown, t.queue)
	}
}

func (t *teller[object]) warn() {
	if t.warned.CompareAndSwap(false, true) {
		t.plain()
	}
}

func isNil(v any) bool {
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Func, reflect.Slice, reflect.Chan:
		return r.IsNil()
	}
	return false
}
