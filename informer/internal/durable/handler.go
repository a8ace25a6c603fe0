package durable

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer/internal/backlog"
)

// Host is the part of an informer that a handler uses.
type Host struct {
	Store   Store
	Backlog *backlog.Backlog
	Clock   clock.WithTicker
	// Page bounds how many objects of a replay are read at a time.
	Page int
	// Synced says whether the informer has synced, and the last seq at that time.
	Synced func() (seq uint64, ok bool)
	// Sharing is how many handlers share Options.PendingBytes; nil means one.
	Sharing *atomic.Int32
}

// Store is the part of a *boltstore.Claimed that a handler uses: its place in the file,
// and walks over the objects.
type Store interface {
	Logger() klog.Logger
	Source() boltstore.Source
	State() boltstore.State
	Epoch() uint64
	Flush()
	ClaimHandler(name string, p boltstore.Positioner, start func(pos boltstore.Position, mark uint64, known bool)) (*boltstore.Handler, error)
	Replay(from []byte, limit int) (boltstore.ReplayPage, error)
	ReplayOf(keys []string) (boltstore.ReplayPage, error)
	Before(key string, place []byte) bool
}

// Handler brings one durable handler the changes that it has not acknowledged. It is also
// the handler's registration with the informer. One goroutine fills the queues of keys;
// Options.Workers goroutines tell the tasks in them.
//
// It is one type because one lock guards its parts: seven methods are the registration,
// three the committer's, and the others are the steps of one goroutine.
type Handler struct {
	host    Host
	name    string
	o       Options
	log     klog.Logger
	claim   *boltstore.Handler
	synced  chan struct{}
	ended   chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	started bool // guarded by the caller of Start and Stop

	mu           sync.Mutex // guards the parts below
	pos          position
	queues       queues
	parking      parking
	parked       unparking
	replay       replay
	startingOver startOver
}

// New claims a handler's name in the file and takes up the position that the
// file has for it. The error is boltstore.ErrClaimed if the name is in use.
func New(host Host, name string, call Func, o Options) (*Handler, error) {
	o = o.withDefaults()
	d := &Handler{host: host, name: name, o: o, log: host.Store.Logger(), synced: make(chan struct{}), ended: make(chan struct{})}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.pos.settled, d.pos.inherited = map[string]uint64{}, map[string]uint64{}
	d.queues = queues{host: &d.host, name: name, call: call, o: &d.o, log: d.log, ctx: d.ctx, owner: d, mu: &d.mu, ofKey: map[string]*keyQueue{},
		memory: memory{sharing: host.Sharing}}
	d.queues.ready.L = &d.mu
	d.queues.retries.wake = make(chan struct{}, 1)
	var err error
	if d.claim, err = host.Store.ClaimHandler(name, d, d.load); err != nil {
		d.cancel()
		return nil, err
	}
	if d.parked.active { // parked by an earlier registration, which has ended by now
		d.queues.known = host.Store.State().Seq + 1
	}
	return d, nil
}

// Name is the handler's name in the file.
func (d *Handler) Name() string { return d.name }

// Start begins to call the handler, in goroutines that end some time after ctx does. It
// is called once, and not during Stop.
func (d *Handler) Start(ctx context.Context, goroutines *sync.WaitGroup) {
	d.started = true
	context.AfterFunc(ctx, d.cancel)
	context.AfterFunc(d.ctx, d.wakeAll)
	d.host.Backlog.Needs(d, d.pos.cursor+1)
	goroutines.Go(d.run)
}

// Stop stops calling the handler. Its name and position stay in the file. It is called
// once.
func (d *Handler) Stop() error {
	d.cancel()
	if !d.started {
		close(d.ended)
		return d.claim.Release()
	}
	go d.wakeAll()
	return nil
}

func (d *Handler) wakeAll() {
	d.mu.Lock()
	d.queues.ready.Broadcast()
	d.mu.Unlock()
	d.host.Backlog.Wake()
}

// HasSynced implements cache.ResourceEventHandlerRegistration: the informer has
// synced, and the handler has been told everything up to there.
func (d *Handler) HasSynced() bool { return cache.IsDone(d.HasSyncedChecker()) }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (d *Handler) HasSyncedChecker() cache.DoneChecker { return syncedChecker{d} }

type syncedChecker struct{ d *Handler }

func (c syncedChecker) Done() <-chan struct{} { return c.d.synced }
func (c syncedChecker) Name() string {
	return fmt.Sprintf("durable handler %q of %s", c.d.name, c.d.host.Store.Source())
}

// ShutdownChan is closed once the handler will not be called any more.
func (d *Handler) ShutdownChan() <-chan struct{} { return d.ended }

func (d *Handler) run() {
	defer close(d.ended)
	for range d.o.Workers {
		d.queues.workers.Go(d.queues.work)
	}
	d.queues.workers.Go(d.queues.retrying)
	for d.ctx.Err() == nil {
		tick := d.host.Backlog.Tick()
		more := d.fill()
		d.mu.Lock()
		d.checkSynced()
		d.mu.Unlock()
		if !more {
			d.host.Backlog.Wait(d.ctx, tick)
		}
	}
	d.host.Backlog.Leave(d)
	d.mu.Lock()
	d.queues.ready.Broadcast()
	d.mu.Unlock()
	d.queues.workers.Wait()
	if err := d.claim.Release(); err != nil {
		d.log.Error(err, "The position of a durable handler was not written, it will be told again", "source", d.host.Store.Source().String(), "handler", d.name)
	}
}

// checkSynced notes that the handler was told everything that was there when the
// informer synced. The caller holds the mutex.
func (d *Handler) checkSynced() {
	seq, ok := d.host.Synced()
	if !ok || cache.IsDone(syncedChecker{d}) {
		return
	}
	if d.replay.active || len(d.replay.shown) > 0 || d.parked.active || d.startingOver.phase != phaseTelling || d.pos.cursor < seq {
		return
	}
	for _, q := range d.queues.ofKey {
		// A key that is told nothing more before it is acknowledged counts as told.
		if q.told < len(q.tasks) && q.unacked() < AheadOfAck && q.failed == 0 && q.tasks[q.told].first <= seq {
			return
		}
	}
	close(d.synced)
}

// acknowledged implements owner.
func (d *Handler) acknowledged(key string, t *task) {
	switch {
	case t.reset:
		d.startingOver.acknowledge()
		d.host.Backlog.Wake()
	case t.more: // the next task has the same entries, and settles last
		d.pos.settle(key, t.seq)
	default:
		d.pos.settle(key, t.last)
	}
	d.claim.Changed()
}

// returned implements owner.
func (d *Handler) returned() { d.checkSynced() }

// kept implements owner.
func (d *Handler) kept(q *keyQueue) {
	if d.queues.memory.blocked && d.queues.isStuck(q) {
		d.moveOut()
	}
}
