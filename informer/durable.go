package informer

import (
	"context"
	"errors"
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
	known     uint64 // last seq of an earlier life that the handler was registered in
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
	resetting   bool             // told to start over and not acknowledged
	resetDue    bool
	anew        bool // what the file has parked is of before a reset
	leavingAnew bool
	lost        bool // the file's position is: it starts over
}

// aheadOfCommit is how many entries a handler that is behind takes in while a
// commit is under way.
const aheadOfCommit = 1024

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
// then the present object beside the one that it last acknowledged.
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
	d.known = inf.store.State().Seq
	if d.h, err = inf.store.ClaimHandler(name, d, d.load); err != nil {
		d.cancel()
		return nil, err
	}
	inf.durables[d] = struct{}{}
	if inf.running != nil {
		inf.listenDurableLocked(d)
	}
	return d, nil
}

// RemoveDurableHandler stops calling the handler and forgets its name: what it
// has not acknowledged is not kept for it. It returns once no call is under way.
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
		<-found.ended
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
	inf.listening.Go(d.run)
}

func (d *durable) wakeAll() {
	d.mu.Lock()
	d.cond.Broadcast()
	d.mu.Unlock()
	d.inf.backlog.wake()
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

// load takes up the position that the file has.
func (d *durable) load(p boltstore.Position, mark uint64, known bool) {
	d.epoch, d.cursor, d.mark = p.Epoch, mark, mark
	d.inherited, d.inheritedTo = p.Pending, max(p.Cursor, mark)
	if d.inherited == nil {
		d.inherited = map[string]uint64{}
	}
	d.shown = sets.New(p.Shown...)
	d.replay = walk{active: p.Replaying, begun: p.Next != nil, next: p.Next}
	d.parked = walk{active: known}
	d.resetDue = p.Reset
	if !known {
		d.known = 0
	}
}

// Position implements boltstore.Positioner.
func (d *durable) Position() boltstore.Position {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := boltstore.Position{
		Epoch: d.epoch, Cursor: max(d.cursor, d.inheritedTo), Pending: map[string]uint64{},
		Replaying: d.replay.active, Next: d.replay.next, Shown: d.shown.UnsortedList(), Reset: d.resetting || d.resetDue,
	}
	if d.reach == 0 { // else a commit has failed, and may be in the file all the same
		d.reach = max(p.Cursor, d.mark) + aheadOfCommit
	}
	p.Reach = d.reach
	for key, first := range d.inherited {
		p.Pending[key] = first
	}
	for _, t := range d.parking {
		t.parking = false
	}
	d.parking = nil
	for key, q := range d.keys {
		if d.blocked && d.park(&p, q) {
			continue
		}
		for _, t := range q.tasks {
			if t.initial && !t.parked && !d.shown.Has(key) {
				p.Shown = append(p.Shown, key)
			}
			if t.first > 0 && !t.parked {
				if first, ok := p.Pending[key]; !ok || t.first < first {
					p.Pending[key] = t.first
				}
				break
			}
		}
	}
	if d.leaving == nil {
		d.leaving, d.settled = d.settled, map[string]uint64{}
	} else { // the commit that it was part of has failed
		for key, seq := range d.settled {
			d.leaving[key] = seq
		}
		clear(d.settled)
	}
	d.leavingAnew = d.anew
	p.Settled, p.Anew = d.leaving, d.anew
	return p
}

// Persisted implements boltstore.Positioner.
func (d *durable) Persisted(mark uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leaving = nil
	d.anew = d.anew && !d.leavingAnew
	d.mark = max(d.mark, mark)
	d.persisted++
	d.reach = 0
	if d.fenced {
		d.fenced = false
		d.inf.backlog.wake()
	}
	d.parkedNow()
}

// Lost implements boltstore.Positioner.
func (d *durable) Lost() {
	d.mu.Lock()
	d.lost = true
	d.mu.Unlock()
	d.inf.backlog.wake()
}

func (d *durable) changed() { d.h.Changed() }

func (d *durable) full() bool {
	return d.held >= d.o.MaxPending || d.bytes >= d.o.PendingBytes
}

func (d *durable) run() {
	defer close(d.ended)
	var workers sync.WaitGroup
	for range d.o.Workers {
		workers.Go(d.work)
	}
	workers.Go(d.retrying)
	for d.ctx.Err() == nil {
		tick := d.inf.backlog.tick()
		more := d.fill()
		d.mu.Lock()
		d.checkSynced()
		d.mu.Unlock()
		if !more {
			d.inf.backlog.wait(d.ctx, tick)
		}
	}
	d.mu.Lock()
	d.cond.Broadcast()
	d.mu.Unlock()
	workers.Wait()
	if err := d.h.Release(); err != nil {
		d.log.Error(err, "The position of a durable handler was not written, it will be told again", "source", d.inf.store.Source().String(), "handler", d.name)
	}
}

// fill takes more into the queues, and says whether there is more to do at once.
func (d *durable) fill() bool {
	room := d.room()
	d.mu.Lock()
	loading := len(d.loads) > 0
	alone := d.alone()
	parked, replaying := d.parked.active || d.mark > d.cursor, d.replay.active || len(d.shown) > 0
	d.mu.Unlock()
	switch {
	case !room && alone:
		return d.fillLoads(1)
	case !room:
		return false
	case loading:
		return d.fillLoads(64)
	case parked:
		return d.fillParked()
	case replaying:
		return d.fillReplay()
	}
	return d.fillEntries(d.inf.backlog.last())
}

// room says whether something may be taken in. It starts over where that is
// due, and nothing is taken in before that is acknowledged.
func (d *durable) room() bool {
	epoch := d.inf.store.Epoch()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case epoch != d.epoch:
		d.startOver(epoch, d.inf.store.State().Seq)
	case d.lost:
		d.startAnew(errors.New("its position could not be read"))
	}
	switch {
	case d.resetDue:
		if d.calls > 0 {
			return false // the last one to return wakes us
		}
		d.resetDue, d.resetting = false, true
		d.add("", &task{reset: true})
		return false
	case d.resetting:
		return false
	case d.full():
		d.block()
		return false
	}
	return true
}

// startOver drops what is in hand. The caller holds the mutex.
func (d *durable) startOver(epoch, seq uint64) {
	for _, q := range d.keys {
		q.dropped = true
		d.o.RateLimiter.Forget(q.key)
	}
	d.keys, d.ready, d.loads, d.parking = map[string]*keyQueue{}, nil, nil, nil
	d.held, d.bytes = 0, 0
	d.inherited, d.inheritedTo, d.settled = map[string]uint64{}, 0, map[string]uint64{}
	d.shown = sets.New[string]()
	d.epoch, d.known, d.cursor, d.mark = epoch, 0, seq, seq
	d.reach = 0
	d.parked, d.replay = walk{}, walk{active: true}
	d.resetDue, d.resetting, d.lost = true, false, false
	d.changed()
}

// damaged starts over because part of what is to be told cannot be read.
func (d *durable) damaged(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.startAnew(err)
}

// startAnew is damaged for who holds the mutex.
func (d *durable) startAnew(err error) {
	d.log.Error(err, "Part of what a durable handler has to be told is damaged, it has to start over", "source", d.inf.store.Source().String(), "handler", d.name)
	d.startOver(d.epoch, d.inf.store.State().Seq)
	d.anew, d.leavingAnew = true, false
}

// fillParked takes in a page of what is parked. It begins with the cursor
// behind the file's mark: what is between is parked or acknowledged.
func (d *durable) fillParked() bool {
	d.mu.Lock()
	from, persisted := d.parked.next, d.persisted
	d.mu.Unlock()
	p, err := d.h.Parked(from, 64)
	switch {
	case errors.Is(err, boltstore.ErrDamaged):
		d.damaged(err)
		return true
	case err != nil:
		return false // closed, or removed
	}
	if d.inf.store.Epoch() != d.epoch {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.persisted != persisted {
		return true // what is gone from the file by now may be in hand
	}
	if !d.parked.begun {
		d.parkedTo = d.cursor
		if d.parked.active { // of an earlier life
			d.parkedTo = 0
		}
		d.parked = walk{active: true, begun: true}
		d.cursor = max(d.cursor, p.Mark)
	}
	d.mark = max(d.mark, p.Mark)
	for i, key := range p.Keys {
		d.unpark(key, p.Last[i], p.Entries[i])
	}
	if d.parked.next = p.Next; p.Next == nil {
		d.parked = walk{}
	}
	d.passInherited()
	d.changed()
	return true
}

// unpark takes in what is parked of one key, unless it is in hand.
func (d *durable) unpark(key string, last uint64, entries []*boltstore.Entry) {
	// Objects of the first list have no seq: theirs is 0.
	if last <= d.parkedTo && d.parkedTo > 0 {
		return
	}
	for _, acked := range []map[string]uint64{d.settled, d.leaving} {
		if seq, ok := acked[key]; ok && seq >= last {
			return
		}
	}
	if q := d.keys[key]; q != nil {
		for _, t := range q.tasks {
			if t.last >= last {
				return
			}
		}
		d.drop(q, last)
	}
	var told []*boltstore.Entry
	for _, e := range entries {
		if d.due(e) {
			told = append(told, e)
		}
	}
	for _, t := range group(told, last) {
		t.parked = true
		d.add(key, t)
	}
	if len(told) == 0 { // left to the replay
		d.settled[key] = max(d.settled[key], last)
	}
}

// drop takes out what has not been told yet of the entries up to last.
func (d *durable) drop(q *keyQueue, last uint64) {
	at := q.untold()
	left := q.tasks[:at:at]
	for _, t := range q.tasks[at:] {
		if t.first > 0 && t.last <= last {
			d.hold(t, -1)
		} else {
			left = append(left, t)
		}
	}
	q.tasks = left
}

// due says whether an entry is to be told: it is not left to the replay. Of
// what the replay has not reached only deletes of what an earlier life may have
// told are.
func (d *durable) due(e *boltstore.Entry) bool {
	return d.replay.passed(d.inf.store, e.Key) && !d.shown.Has(e.Key) || e.Type == cache.Deleted && e.Born <= d.known
}

// fillReplay takes in the next page of objects, after every entry that its
// snapshot contains.
func (d *durable) fillReplay() bool {
	again := d.shown.UnsortedList()
	again = again[:min(len(again), pageObjects)]
	var p boltstore.ReplayPage
	var err error
	if len(again) > 0 {
		p, err = d.inf.store.ReplayOf(again)
	} else {
		p, err = d.inf.store.Replay(d.replay.next, pageObjects)
	}
	if err != nil {
		// Damage is noted by the store, and a relist under way, which tells of
		// what could not be read.
		d.log.V(2).Info("Replay is incomplete", "source", d.inf.store.Source().String(), "handler", d.name, "err", err)
		if len(p.Entries) == 0 {
			return false
		}
	}
	if p.Epoch != d.epoch {
		return true
	}
	if !p.Synced {
		return false // nothing to replay before the first sync
	}
	for d.behind(p.Seq) {
		tick := d.inf.backlog.tick()
		if !d.room() || !d.fillEntries(p.Seq) {
			d.inf.backlog.wait(d.ctx, tick)
		}
		if d.ctx.Err() != nil {
			return false
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.epoch != p.Epoch || d.cursor != p.Seq || d.mark > d.cursor || d.parked.active {
		return true // it has gone past the page: read it again
	}
	for _, e := range p.Entries {
		d.add(e.Key, &task{entry: e, initial: true, last: e.Seq})
	}
	if len(again) > 0 {
		d.shown.Delete(again...)
	} else {
		d.replay = walk{active: p.Next != nil, begun: true, next: p.Next}
	}
	d.changed()
	return true
}

// behind says whether entries up to seq have still to be taken in. Nothing is
// where they have been parked meanwhile, or where it has to start over.
func (d *durable) behind(seq uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.cursor < seq && d.mark <= d.cursor && !d.resetDue && !d.resetting
}

// fillEntries takes in entries behind the cursor, up to a seq, as much as comes
// at once, and says whether there was any.
func (d *durable) fillEntries(upto uint64) bool {
	d.mu.Lock()
	from, epoch := d.cursor+1, d.epoch
	d.mu.Unlock()
	if from > upto {
		return false
	}
	entries, inFile := d.inf.backlog.from(from)
	if inFile {
		var mark uint64
		var err error
		entries, mark, err = d.h.ReadJournal(from)
		switch {
		case errors.Is(err, boltstore.ErrDamaged):
			d.damaged(err)
			return true
		case err != nil:
			return false // the file is closed, or fails; the next event tries again
		case mark >= from:
			d.mu.Lock()
			d.mark = max(d.mark, mark)
			d.mu.Unlock()
			return true
		}
	}
	if d.inf.store.Epoch() != epoch {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case len(entries) == 0 && inFile:
		d.startAnew(fmt.Errorf("journal entries from %d on are missing: %w", from, boltstore.ErrDamaged))
		return true
	case len(entries) == 0:
		return false
	case entries[0].Seq != from:
		d.startAnew(fmt.Errorf("journal entries from %d to %d are missing: %w", from, entries[0].Seq-1, boltstore.ErrDamaged))
		return true
	}
	for _, e := range entries {
		if e.Seq > upto {
			break
		}
		if d.reach > 0 && e.Seq > d.reach {
			d.fenced = true
			d.changed()
			return false
		}
		if d.full() {
			d.block()
			return false
		}
		first, pending := d.inherited[e.Key]
		if unacked := e.Seq > d.inheritedTo || pending && first <= e.Seq; unacked && d.due(e) {
			d.add(e.Key, &task{entry: e, first: e.Seq, last: e.Seq})
		}
		if pending {
			d.inherited[e.Key] = max(first, e.Seq+1)
		}
		d.cursor = e.Seq
		d.passInherited()
	}
	d.changed()
	return true
}

// passInherited forgets what an earlier life left once the cursor is past it.
func (d *durable) passInherited() {
	if d.cursor >= d.inheritedTo {
		clear(d.inherited)
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
		if q.told < len(q.tasks) {
			return
		}
	}
	close(d.synced)
}
