package informer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/informer/internal/backlog"
	"github.com/kubewake/kubewake/reflector"
)

// Informer is a cache.SharedIndexInformer over the file, with methods beyond that
// interface. It is one type because users hold it as one.
//
// About half of its methods are those of client-go's interface. handler_listener.go tells
// plain handlers, and durable_handler.go tells durable ones.
type Informer struct {
	o           Options
	store       *boltstore.Claimed
	lw          cache.ListerWatcher
	server      string
	example     runtime.Object
	known       uint64 // one above the last seq of an earlier life, 0 without one
	toldAtStart uint64 // told mark when this life began
	toldNow     uint64 // told mark now, which is written later; guarded by mu
	backlog     *backlog.Backlog
	metrics     *publisher             // nil without Options.InformerName
	mutated     cache.MutationDetector // of objects that handlers were told; does nothing by default
	page        int                    // objects of a replay that are read at a time
	moved       func() <-chan struct{} // ends Run when the file is moved; nil if nothing does
	synced      chan struct{}
	lease       *lease // of the source
	// syncedSeq is the last seq when synced was closed; set before that.
	syncedSeq uint64

	mu          sync.Mutex
	started     bool
	stopped     bool
	transform   cache.TransformFunc
	watchErrors cache.WatchErrorHandlerWithContext
	queue       *fifo.Queue
	source      *reflector.Reflector
	resyncCheck time.Duration
	listeners   map[*listener]struct{}
	absent      []absent      // oldest first
	parted      chan struct{} // absent has one more
	durables    map[*durableHandler]struct{}
	naming      sync.Mutex      // held by addNamed
	running     context.Context // of the listeners, nil before Run
	listening   sync.WaitGroup  // the mutation detector
	telling     sync.WaitGroup  // handlers
	phases      phases
}

var _ cache.SharedIndexInformer = &Informer{}

// NewSharedIndexInformer claims the source that lw lists, and returns an informer over
// it. example is an object of the type that lw returns; an unstructured or metadata
// example may have apiVersion and kind. Reads work at once. The claim lasts until Run
// returns. An informer that is never run holds it until the DB is closed.
//
// The error is boltstore.ErrClaimed if the source is in use in this process, and
// reflector.ErrUnidentified if nothing shows which source it is.
func NewSharedIndexInformer(db *boltstore.DB, lw cache.ListerWatcher, example runtime.Object, o Options) (
	*Informer, error,
) {
	o = o.withDefaults()
	claim := boltstore.Claim{Example: example, Indexers: o.Indexers, IndexVersions: o.IndexVersions, Codec: o.Codec,
		ServeOutdated: o.ServeOutdated}
	var server string
	var err error
	if claim.Source, server, err = o.Reflector.Identify(lw, example); err != nil {
		return nil, err
	}
	lease := newLease(db, claim.Source)
	store, err := db.Claim(claim)
	if err != nil {
		lease.end()
		return nil, err
	}
	lease.claimed()
	store.Feed.ExpectProducer()
	if o.clock == nil {
		o.clock = store.Clock()
	}
	st := store.State()
	inf := &Informer{
		toldAtStart: st.Told, toldNow: st.Told, page: pageObjects,
		o: o, store: store, lw: lw, server: server, example: example, synced: make(chan struct{}), lease: lease,
		backlog: backlog.New(st.Seq, o.backlogBytes), resyncCheck: o.ResyncPeriod,
		listeners: map[*listener]struct{}{}, durables: map[*durableHandler]struct{}{},
		parted:  make(chan struct{}, 1),
		mutated: cache.NewCacheMutationDetector(fmt.Sprintf("%T", example)),
	}
	if st.Synced || st.Seq > 0 {
		inf.known = st.Seq + 1
	}
	inf.o.Reflector.OnState = inf.phases.then(o.Reflector.OnState)
	inf.metrics = newPublisher(o, store.Source())
	if o.EndWhenMoved {
		inf.moved = db.Moved
	}
	inf.expectHandler()
	store.SetUser(inf)
	store.SetFreshness(inf.freshness, inf.reached, inf.readableAge)
	return inf, inf.SetTransform(o.Transform)
}

// GetStore returns the store, which serves reads from memory or from the file.
func (inf *Informer) GetStore() cache.Store { return inf.store }

// GetIndexer returns the store.
func (inf *Informer) GetIndexer() cache.Indexer { return inf.store }

// Store returns the store in its own type.
func (inf *Informer) Store() *boltstore.Store { return inf.store.Store }

// State says what the source is doing, and how old the data is.
func (inf *Informer) State() reflector.State {
	inf.mu.Lock()
	src := inf.source
	inf.mu.Unlock()
	if src == nil {
		return reflector.StateOf(inf.store.State(), inf.o.clock.Now())
	}
	return src.State()
}

// AddIndexers adds indices, before or after the start. Readers find stored objects by
// them before it returns.
func (inf *Informer) AddIndexers(indexers cache.Indexers) error {
	if inf.IsStopped() {
		return errors.New("indexer was not added because it has stopped already")
	}
	return inf.store.AddIndexers(indexers)
}

// SetTransform sets the transform, whose version is Options.TransformVersion.
func (inf *Informer) SetTransform(fn cache.TransformFunc) error {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.started {
		return errors.New("informer has already started")
	}
	inf.transform = fn
	inf.store.SetTransformVersion(transformVersion(fn, inf.o.TransformVersion))
	if fn != nil && inf.o.TransformVersion == "" {
		inf.store.Logger().Info("The transform has no version: a new build of the program lists all objects again, "+
			"and another setting of it is not noticed; set Options.TransformVersion",
			"source", inf.store.Source().String())
	}
	return nil
}

// SetWatchErrorHandler sets the handler for errors of lists and watches.
func (inf *Informer) SetWatchErrorHandler(fn cache.WatchErrorHandler) error {
	return inf.SetWatchErrorHandlerWithContext(func(_ context.Context, r *cache.Reflector, err error) { fn(r, err) })
}

// SetWatchErrorHandlerWithContext is SetWatchErrorHandler with a context.
func (inf *Informer) SetWatchErrorHandlerWithContext(fn cache.WatchErrorHandlerWithContext) error {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.started {
		return errors.New("informer has already started")
	}
	inf.watchErrors = fn
	return nil
}

// HasSynced is true once the server has confirmed the state and everything up to there is
// in the store. It is also true if the file was fresh enough for Options.MaxStaleness.
func (inf *Informer) HasSynced() bool { return cache.IsDone(inf.HasSyncedChecker()) }

// HasSyncedChecker is done when HasSynced is true.
func (inf *Informer) HasSyncedChecker() cache.DoneChecker {
	return doneChecker{fmt.Sprintf("SharedIndexInformer %T of %s", inf.example, inf.store.Source()), inf.synced}
}

type doneChecker struct {
	name string
	done <-chan struct{}
}

func (d doneChecker) Name() string          { return d.name }
func (d doneChecker) Done() <-chan struct{} { return d.done }

// LastSyncResourceVersion is the version up to which every change has been accepted.
// Before Run it is the version in the file.
func (inf *Informer) LastSyncResourceVersion() string {
	inf.mu.Lock()
	q := inf.queue
	inf.mu.Unlock()
	if q == nil {
		return inf.store.State().ResourceVersion
	}
	return q.AcceptedVersion()
}

// IsStopped is true once Run has returned.
func (inf *Informer) IsStopped() bool {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	return inf.stopped
}

// GetController returns a controller whose Run does nothing, as client-go does.
func (inf *Informer) GetController() cache.Controller { return controller{inf} }

type controller struct{ *Informer }

func (controller) Run(<-chan struct{})            {}
func (controller) RunWithContext(context.Context) {}

// Run runs the informer until stop is closed.
func (inf *Informer) Run(stop <-chan struct{}) {
	inf.RunWithContext(wait.ContextForChannel(stop))
}

// RunWithContext runs the informer until ctx is cancelled, or until the file is moved
// if Options.EndWhenMoved asks for that. Before it returns, accepted changes are in
// the file, handlers' calls have returned, and the source is released.
func (inf *Informer) RunWithContext(ctx context.Context) {
	if inf.moved != nil {
		var end context.CancelFunc
		ctx, end = untilClosed(ctx, inf.moved())
		defer end()
	}
	if !inf.start() {
		klog.FromContext(ctx).Info("Warning: the informer has started, run more than once is not allowed", "source",
			inf.store.Source().String())
		return
	}
	listenCtx, stopListening := context.WithCancel(context.WithoutCancel(ctx))
	inf.listen(listenCtx)
	inf.listening.Go(func() { inf.mutated.Run(listenCtx.Done()) })
	stopWatching := context.AfterFunc(ctx, func() { close(inf.lease.ending); inf.backlog.Wake() })
	defer stopWatching()

	var wg sync.WaitGroup
	wg.Go(func() { inf.awaitSync(ctx) })
	named := cache.NewReflectorWithOptions(inf.lw, inf.example, inf.queue, // error handlers want one; it does not run
		cache.ReflectorOptions{TypeDescription: inf.o.ObjectDescription})
	wg.Go(func() { inf.source.Run(ctx, named, inf.watchErrorHandler()) })
	if inf.resyncCheck > 0 {
		wg.Go(func() { _ = wait.PollUntilContextCancel(ctx, inf.resyncCheck, false, inf.resyncDue) })
	}
	stopPopping := context.AfterFunc(ctx, inf.queue.Close)
	defer stopPopping()
	for ctx.Err() == nil {
		_ = inf.queue.PopBatch(inf.processBatch, inf.process)
	}
	wg.Wait()

	flushCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := inf.queue.Flush(flushCtx); err != nil {
		inf.store.Logger().Error(err, "The last changes are not in the file and will be fetched again", "source",
			inf.store.Source().String())
	}
	inf.mu.Lock()
	inf.stopped = true
	inf.mu.Unlock()
	stopListening()
	inf.backlog.Wake()
	inf.listening.Wait()
	told := make(chan struct{})
	go func() { defer close(told); inf.telling.Wait() }()
	inf.lease.await(told)
	inf.store.Release()
	inf.lease.end()
	<-told
}

// untilClosed returns a context that ends with ctx, or once ch is closed.
func untilClosed(ctx context.Context, ch <-chan struct{}) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-ctx.Done():
		case <-ch:
			cancel()
		}
	}()
	return ctx, cancel
}

// start says whether it is the first one.
func (inf *Informer) start() bool {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.started {
		return false
	}
	inf.started = true
	inf.queue = fifo.New(inf.store, inf.transform)
	if inf.metrics != nil {
		inf.queue.OnLength(inf.metrics.length)
	}
	inf.source = reflector.New(inf.lw, inf.queue, inf.store, inf.example, inf.server, inf.o.Reflector)
	st := inf.store.State()
	fresh := inf.o.MaxStaleness < 0 || st.ConfirmedAge != nil && *st.ConfirmedAge < inf.o.MaxStaleness &&
		st.Unstored == 0
	whole := st.Synced && (st.ResourceVersion != "" || !st.Confirmed.IsZero()) // and not purged
	if whole && fresh && inf.store.Outdated() == "" && inf.store.Err() == nil {
		inf.queue.CountAsSynced()
	}
	return true
}

func (inf *Informer) watchErrorHandler() cache.WatchErrorHandlerWithContext {
	if inf.watchErrors != nil {
		return inf.watchErrors
	}
	return func(ctx context.Context, r *cache.Reflector, err error) {
		if ctx.Err() == nil { // a watch that was stopped has not ended by itself
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}
	}
}

// resyncDue has the handlers told again that ask for it.
func (inf *Informer) resyncDue(context.Context) (stop bool, err error) {
	if inf.shouldResync() {
		err = inf.queue.Resync()
	}
	return false, err
}

// awaitSync notes when the queue has synced. From then on it lets the told mark go past
// removed handlers.
func (inf *Informer) awaitSync(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-inf.queue.Done():
	}
	inf.syncedSeq = inf.backlog.Last()
	close(inf.synced)
	inf.backlog.Wake()
	inf.forgetAbsent(ctx)
}

// process puts a popped delta into the handlers' backlog. It does not block: the watch
// never waits for a handler.
func (inf *Informer) process(obj any, _ bool) error {
	deltas, ok := obj.(cache.Deltas)
	if !ok {
		return fmt.Errorf("informer: popped a %T", obj)
	}
	return inf.processBatch(deltas, false)
}

func (inf *Informer) processBatch(deltas []cache.Delta, _ bool) error {
	if inf.metrics != nil {
		began := inf.o.clock.Now()
		defer func() {
			inf.metrics.processed(inf.o.clock.Since(began), inf.store.LastStoreSyncResourceVersion())
		}()
	}
	for _, d := range deltas {
		switch d.Type {
		case cache.SyncAll:
			inf.resync()
		case cache.ReplacedAll:
			if r, ok := d.Object.(fifo.Relisted); ok && r.First {
				inf.replayAgain()
			}
			inf.backlog.Jump(inf.store.State().Seq)
		default:
			e, ok := d.Object.(*boltstore.Entry)
			if !ok {
				return fmt.Errorf("informer: popped a %s of %T", d.Type, d.Object)
			}
			inf.backlog.Append(e)
		}
	}
	inf.noteTold()
	return nil
}
