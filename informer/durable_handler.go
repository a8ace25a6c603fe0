package informer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubewake/kubewake/boltstore"
)

// durableHandler tells one durable handler its pending keys, and is its registration with
// the informer. The keys are in the file. In memory stands a workqueue of those that are to
// be told, and what is known of them (inHand). A commit adds the keys that it has changed. A
// walk over the file's set adds all others: those of the start, and those for which there
// was no room.
type durableHandler struct {
	inf     *Informer
	name    string
	handler DurableHandler
	workers int
	limiter workqueue.TypedRateLimiter[string]
	claim   *boltstore.Handler
	order   *keyOrder
	wake    chan struct{} // run has something to do
	synced  chan struct{}
	ended   chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	working sync.WaitGroup

	walk keyWalk // of run's goroutine

	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[string] // nil before the start
	hand
}

const (
	// pageKeys is how many pending keys are read at a time.
	pageKeys = 1000
	// walkedKeys is how many keys of the walk wait in the queue at most.
	walkedKeys = 64
	// freshKeys is how many keys that commits have changed wait in the queue at most.
	// Beyond that they are left to the walk.
	freshKeys = 1000
)

func newDurableHandler(inf *Informer, name string, h DurableHandler, o DurableOptions) (*durableHandler, error) {
	d := &durableHandler{
		inf: inf, name: name, handler: h, workers: max(o.Workers, 1), limiter: o.RateLimiter, order: newKeyOrder(),
		wake: make(chan struct{}, 1), synced: make(chan struct{}), ended: make(chan struct{}), hand: newHand(),
	}
	if d.limiter == nil {
		d.limiter = workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 5*time.Minute)
	}
	d.idle.L = &d.mu
	d.ctx, d.cancel = context.WithCancel(context.Background())
	var err error
	if d.claim, err = inf.store.Delivery.Claim(name, d.changed); err != nil {
		d.cancel()
		return nil, err
	}
	return d, nil
}

// start begins to call the handler, in goroutines that end some time after ctx does. It is
// called once, and not during stop.
func (d *durableHandler) start(ctx context.Context, goroutines *sync.WaitGroup) {
	clk := d.inf.o.clock
	ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[string]{Clock: clk, Queue: d.order})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(
		workqueue.TypedDelayingQueueConfig[string]{Clock: clk, Queue: ordered})
	d.mu.Lock()
	d.queue = workqueue.NewTypedRateLimitingQueueWithConfig(d.limiter,
		workqueue.TypedRateLimitingQueueConfig[string]{Clock: clk, DelayingQueue: delaying})
	d.walkDue = true
	d.mu.Unlock()
	if _, owed := d.claim.ResetOwed(); owed { // a later one comes by changed
		d.mu.Lock()
		d.owe()
		d.mu.Unlock()
	}
	context.AfterFunc(ctx, d.cancel)
	goroutines.Go(d.run)
}

// stop stops calling the handler. Its name and pending keys stay in the file. It is called
// once.
func (d *durableHandler) stop() error {
	d.cancel()
	d.mu.Lock()
	started := d.queue != nil
	d.mu.Unlock()
	if started {
		return nil
	}
	close(d.ended)
	return d.claim.Release()
}

// HasSynced implements cache.ResourceEventHandlerRegistration: the informer has synced, and
// the handler has been told each key that was pending then.
func (d *durableHandler) HasSynced() bool { return cache.IsDone(d.HasSyncedChecker()) }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (d *durableHandler) HasSyncedChecker() cache.DoneChecker {
	return doneChecker{fmt.Sprintf("durable handler %q of %s", d.name, d.inf.store.Source()), d.synced}
}

// ShutdownChan is closed once the handler will not be called any more.
func (d *durableHandler) ShutdownChan() <-chan struct{} { return d.ended }

// run fills the queue until the handler ends.
func (d *durableHandler) run() {
	defer close(d.ended)
	for range d.workers {
		d.working.Go(d.work)
	}
	synced := d.inf.synced
	for d.ctx.Err() == nil {
		d.fill()
		d.checkSynced()
		select {
		case <-d.ctx.Done():
		case <-d.wake:
		case <-synced:
			synced = nil
		}
	}
	d.queue.ShutDown()
	d.working.Wait()
	if err := d.claim.Release(); err != nil {
		d.inf.store.Logger().Error(err,
			"Acknowledgements of a durable handler were not written, so the next life tells these keys again",
			"source", d.inf.store.Source().String(), "handler", d.name)
	}
}

// poke has run look again.
func (d *durableHandler) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// changed takes in what a commit has changed. It neither blocks nor calls the store.
func (d *durableHandler) changed(c boltstore.HandlerChange) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.queue == nil {
		return // the start reads all
	}
	if c.Reset {
		d.owe()
	}
	if c.Readable {
		d.readable()
	}
	for _, k := range c.Keys {
		if d.keys[k.Key] == nil && d.order.fresh() >= freshKeys {
			d.walkDue = true
			continue
		}
		if st := d.due(k); st.failures == 0 {
			d.order.prefer(k.Key)
		}
		d.queue.Add(k.Key)
	}
	d.poke()
}

// owe makes a Reset due. What was in hand is void. The caller holds the mutex.
func (d *durableHandler) owe() {
	for key := range d.keys {
		d.drop(key)
	}
	d.recent = newRecentObjects()
	d.due(boltstore.PendingKey{Since: d.inf.o.clock.Now()})
	d.order.prefer("")
	d.queue.Add("")
}

// keyWalk is a walk over the pending keys in the file.
type keyWalk struct {
	active bool
	page   []boltstore.PendingKey // read, and not in the queue yet
	next   []byte                 // where the next page begins
	// final says that no key that HasSynced waits for became pending after the walk began.
	final bool
}

func (w *keyWalk) over() bool { return !w.active && len(w.page) == 0 }

// fill adds keys from the file to the queue while there is room.
func (d *durableHandler) fill() {
	for d.ctx.Err() == nil && d.nextPage() {
		d.mu.Lock()
		for len(d.walk.page) > 0 && d.walked < walkedKeys {
			k := d.walk.page[0]
			d.walk.page = d.walk.page[1:]
			if d.keys[k.Key] == nil && d.keys[""] == nil {
				d.due(k).walked = true
				d.walked++
				d.queue.Add(k.Key)
			}
		}
		full := len(d.walk.page) > 0
		d.mu.Unlock()
		if full {
			return
		}
	}
}

// nextPage reads the next page of a walk that is due, unless there is one. It says whether
// there is more to do.
func (d *durableHandler) nextPage() bool {
	if len(d.walk.page) > 0 {
		return true
	}
	if !d.walk.active {
		if !d.walkIsDue() {
			return false
		}
		d.walk = keyWalk{active: true, final: d.settled()}
	}
	keys, next, err := d.claim.Keys(d.walk.next, pageKeys)
	if err != nil {
		d.complain("", 1, fmt.Errorf("its pending keys cannot be read: %w", err))
		d.mu.Lock()
		d.walkDue = true
		d.mu.Unlock()
		d.walk = keyWalk{}
		select {
		case <-d.ctx.Done():
		case <-d.inf.o.clock.After(time.Second):
		}
		d.poke()
		return false
	}
	d.walk.page, d.walk.next, d.walk.active = keys, next, next != nil
	return true
}

// walkIsDue says whether a walk is due, and notes that it begins.
func (d *durableHandler) walkIsDue() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	due := d.walkDue
	d.walkDue = false
	return due
}

// settled says that the informer has synced and no keys are still to be added.
func (d *durableHandler) settled() bool {
	select {
	case <-d.inf.synced:
		return !d.claim.Behind()
	default:
		return false
	}
}

// checkSynced notes that the handler has been told each key that was pending once the
// informer had synced. A walk that begins after that finds these keys.
func (d *durableHandler) checkSynced() {
	if cache.IsDone(d.HasSyncedChecker()) || !d.walk.over() {
		return
	}
	settled := d.settled()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.counted && !d.walkDue && !d.unread && d.keys[""] == nil && settled {
		if d.counted = d.walk.final; !d.counted {
			d.walkDue = true
			d.poke()
		}
	}
	if d.counted && d.untold == 0 {
		close(d.synced)
	}
}

// lag returns how far the handler is behind.
func (d *durableHandler) lag() Lag {
	l := Lag{Handler: d.name, Pending: d.claim.Length(), Behind: d.claim.Behind()}
	d.mu.Lock()
	defer d.mu.Unlock()
	l.Failing, l.Failures = d.failing, d.failures
	for _, st := range d.keys {
		if l.Since.IsZero() || st.since.Before(l.Since) {
			l.Since = st.since
		}
	}
	if !l.Since.IsZero() {
		l.Age = max(d.inf.o.clock.Since(l.Since), 0)
	}
	return l
}
