package informer

import (
	"context"
	"fmt"
	"sync"

	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// durable brings a durable handler what it has not acknowledged. One goroutine
// fills the queues of keys, Workers empty them. What is read comes in this
// order: what is parked, then objects of an unfinished replay, each page after
// the entries that its snapshot contains, then the journal behind the cursor.
type durable struct {
	inf     *Informer
	name    string
	handler DurableHandler
	o       DurableOptions
	log     klog.Logger
	h       *boltstore.Handler
	synced  chan struct{}
	ended   chan struct{}
	ctx     context.Context
	cancel  context.CancelFunc
	started bool // guarded by the informer's mutex

	retryWake chan struct{}

	mu           sync.Mutex
	cond         sync.Cond // something is ready
	keys         map[string]*keyQueue
	ready        []*keyQueue
	retries      []retry
	loads        []*keyQueue // to be read from what is parked
	held         int         // tasks in memory
	bytes        int         // of these
	calls        int         // under way
	blocked      bool        // filling waits for room
	looking      bool        // it will be looked for what is stuck
	parking      []*task     // are part of the commit under way
	parkingBytes int

	epoch     uint64
	known     uint64 // one above the last seq of an earlier life that the handler was registered in, 0 without one
	cursor    uint64 // entries up to it have been taken into the queues
	mark      uint64 // the file's: entries up to it may have been parked
	persisted uint64 // counts commits
	// reach is the seq up to which entries are taken in before Persisted, which
	// the commit under way has been told; 0 without one.
	reach  uint64
	fenced bool // it has been reached, filling waits

	// inherited are the first unacknowledged entries behind the cursor of keys,
	// of an earlier life, as long as the cursor is below inheritedTo.
	inherited   map[string]uint64
	inheritedTo uint64
	// settled and leaving are what was acknowledged since the last commit, and
	// is part of the one under way.
	settled, leaving map[string]uint64

	parked      walk
	parkedTo    uint64 // the cursor when the walk over what is parked began
	replay      walk
	shown       sets.Set[string] // of an earlier life, to be shown again
	shownAt     uint64           // seq of the last page of objects
	resetting   bool             // told to start over and not acknowledged
	resetDue    bool
	anew        bool // it has started over, and the file does not say so yet
	leavingAnew bool // the commit under way does
	lost        bool // the file's position is: it starts over
	overs       int  // counts how often it started over
}

// AddDurableHandler adds a handler whose progress is in the file, under a name
// that must be the same in each life of the process and belongs to this source.
// After a restart it is told exactly what it has not acknowledged by then,
// deletes included: at least once, and in order for each key, whatever ended
// the process. Acknowledgements are written with the source's next commit, or
// within boltstore.Options.FlushInterval.
//
// A name that the file does not know is first told of every object that is
// there, as Added; a restart continues that. What is there before the
// informer's first sync is the same. If the journal exceeds
// boltstore.Options.JournalBytes because of the handler, what it has not
// acknowledged is collapsed, for each key: deletes of objects that it may know,
// then the present object beside the one that it last acknowledged; alone, as
// Added, if it changed while the handler was being shown the objects.
//
// The name stays registered, and what it needs is kept, until
// RemoveDurableHandler; while it is not added in a life of the process, too.
func (inf *Informer) AddDurableHandler(name string, h DurableHandler, o DurableOptions) (cache.ResourceEventHandlerRegistration, error) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.stopped {
		return nil, fmt.Errorf("informer: durable handler %q was not added because the informer has stopped already", name)
	}
	o = o.withDefaults(inf)
	d := &durable{
		inf: inf, name: name, handler: h, o: o, log: *o.Logger, synced: make(chan struct{}), ended: make(chan struct{}),
		retryWake: make(chan struct{}, 1), keys: map[string]*keyQueue{}, settled: map[string]uint64{}, inherited: map[string]uint64{},
	}
	d.cond.L = &d.mu
	d.ctx, d.cancel = context.WithCancel(context.Background())
	var err error
	if d.h, err = inf.store.ClaimHandler(name, d, d.load); err != nil {
		d.cancel()
		return nil, err
	}
	if d.parked.active { // of an earlier registration, which has ended by now
		d.known = inf.store.State().Seq + 1
	}
	inf.durables[d] = struct{}{}
	if inf.running != nil {
		inf.listenDurableLocked(d)
	}
	return d, nil
}

// RemoveDurableHandler stops calling the handler and forgets its name: what it
// has not acknowledged is not kept for it. It does not wait for calls under way,
// whose answers do not count any more, so that the handler can call it, too. To
// wait, call cache.ShutDownEventHandler first. The name can be added again at
// once.
func (inf *Informer) RemoveDurableHandler(name string) error {
	inf.mu.Lock()
	var found *durable
	for d := range inf.durables {
		if d.name == name {
			found = d
		}
	}
	inf.mu.Unlock()
	if found != nil {
		if err := inf.stopDurable(found); err != nil {
			return err
		}
	}
	return inf.store.RemoveHandler(name)
}

// stopDurable stops calling the handler; its name and position stay.
func (inf *Informer) stopDurable(d *durable) error {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if _, there := inf.durables[d]; !there {
		return nil
	}
	delete(inf.durables, d)
	d.cancel()
	if !d.started {
		close(d.ended)
		return d.h.Release()
	}
	go d.wakeAll()
	return nil
}

func (inf *Informer) listenDurableLocked(d *durable) {
	d.started = true
	context.AfterFunc(inf.running, d.cancel)
	context.AfterFunc(d.ctx, d.wakeAll)
	inf.backlog.Needs(d, d.cursor+1)
	inf.listening.Go(d.run)
}

func (d *durable) wakeAll() {
	d.mu.Lock()
	d.cond.Broadcast()
	d.mu.Unlock()
	d.inf.backlog.Wake()
}

// HasSynced implements cache.ResourceEventHandlerRegistration: the informer has
// synced, and the handler has been told of everything up to there.
func (d *durable) HasSynced() bool { return cache.IsDone(d.HasSyncedChecker()) }

// HasSyncedChecker implements cache.ResourceEventHandlerRegistration.
func (d *durable) HasSyncedChecker() cache.DoneChecker {
	return doneChecker{fmt.Sprintf("durable handler %q of %s", d.name, d.inf.store.Source()), d.synced}
}

// ShutdownChan is closed once the handler will not be called any more.
func (d *durable) ShutdownChan() <-chan struct{} { return d.ended }

func (d *durable) run() {
	defer close(d.ended)
	var workers sync.WaitGroup
	for range d.o.Workers {
		workers.Go(d.work)
	}
	workers.Go(d.retrying)
	for d.ctx.Err() == nil {
		tick := d.inf.backlog.Tick()
		more := d.fill()
		d.mu.Lock()
		d.checkSynced()
		d.mu.Unlock()
		if !more {
			d.inf.backlog.Wait(d.ctx, tick)
		}
	}
	d.inf.backlog.Leave(d)
	d.mu.Lock()
	d.cond.Broadcast()
	d.mu.Unlock()
	workers.Wait()
	if err := d.h.Release(); err != nil {
		d.log.Error(err, "The position of a durable handler was not written, it will be told again", "source", d.inf.store.Source().String(), "handler", d.name)
	}
}

// checkSynced notes that the handler has been told of all that there was when
// the informer synced. The caller holds the mutex.
func (d *durable) checkSynced() {
	select {
	case <-d.inf.synced:
	default:
		return
	}
	select {
	case <-d.synced:
		return
	default:
	}
	if d.replay.active || len(d.shown) > 0 || d.parked.active || d.resetDue || d.resetting || d.cursor < d.inf.syncedSeq {
		return
	}
	for _, q := range d.keys {
		// A key that is told no more of before it answers has been told.
		if q.told < min(len(q.tasks), aheadOfAck) && q.failed == 0 && q.tasks[q.told].first <= d.inf.syncedSeq {
			return
		}
	}
	close(d.synced)
}
