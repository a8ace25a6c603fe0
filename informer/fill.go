package informer

import (
	"errors"
	"fmt"

	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
)

// Filling takes into the queues of keys what a durable handler has to be told,
// in one goroutine.

// aheadOfCommit is how many entries a handler that is behind takes in while a
// commit is under way.
const aheadOfCommit = 1024

func (d *durable) full() bool {
	return d.held >= d.o.MaxPending || d.bytes >= d.o.PendingBytes
}

// fill takes more into the queues, and says whether there is more to do at once.
func (d *durable) fill() bool {
	room := d.room()
	if d.reload(room) {
		return true
	}
	d.mu.Lock()
	parked, replaying := d.parked.active || d.mark > d.cursor, d.replay.active || len(d.shown) > 0
	d.mu.Unlock()
	switch {
	case !room:
		return false
	case parked:
		return d.fillParked()
	case replaying:
		return d.fillReplay()
	}
	return d.fillEntries(d.inf.backlog.Last())
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
		// What the handler does about a Reset a crash must not make forget: the
		// file has it first.
		if d.calls > 0 || d.anew {
			return false // the last one to return wakes us, or the commit
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
	d.shown, d.shownAt = sets.New[string](), 0
	d.epoch, d.known, d.cursor, d.mark = epoch, 0, seq, seq
	d.reach = 0
	d.overs++
	d.parked, d.replay = walk{}, walk{active: true}
	d.resetDue, d.resetting, d.lost = true, false, false
	d.anew, d.leavingAnew = true, false
	d.changed()
	d.inf.store.Flush()
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
}

// due says whether an entry is to be told: it is not left to the replay. Of
// what the replay has not reached only deletes of what an earlier life may have
// told are.
func (d *durable) due(e *boltstore.Entry) bool {
	return d.replay.passed(d.inf.store, e.Key) && !d.shown.Has(e.Key) || e.Type == cache.Deleted && e.Born < d.known || e.Unknown()
}

// fillReplay takes in the next page of objects, after every entry that its
// snapshot contains.
func (d *durable) fillReplay() bool {
	overs, again := d.overs, d.shown.UnsortedList()
	again = again[:min(len(again), d.inf.page)]
	var p boltstore.ReplayPage
	var err error
	if len(again) > 0 {
		p, err = d.inf.store.ReplayOf(again)
	} else {
		p, err = d.inf.store.Replay(d.replay.next, d.inf.page)
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
		tick := d.inf.backlog.Tick()
		if room := d.room(); !d.reload(room) && (!room || !d.fillEntries(p.Seq)) {
			d.inf.backlog.Wait(d.ctx, tick)
		}
		if d.ctx.Err() != nil {
			return false
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.overs != overs || d.cursor != p.Seq || d.mark > d.cursor || d.parked.active {
		return true // it has started over, or gone past the page: read it again
	}
	for _, e := range p.Entries {
		d.add(e.Key, &task{entry: e, seq: e.Seq, initial: true, last: e.Seq})
	}
	d.shownAt = p.Seq
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
	d.inf.backlog.Needs(d, from)
	if from > upto {
		return false
	}
	entries, inFile := d.inf.backlog.From(from)
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
		switch unacked := e.Seq > d.inheritedTo || pending && first <= e.Seq; {
		case unacked && d.due(e):
			d.add(e.Key, &task{entry: e, seq: e.Seq, first: e.Seq, last: e.Seq})
		case unacked:
			d.leave(e)
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

// leave notes that an entry is left to the replay. A commit may be parking it
// now: that goes with what is told of the key before.
func (d *durable) leave(e *boltstore.Entry) {
	var tasks []*task
	if q := d.keys[e.Key]; q != nil {
		tasks = q.tasks
	}
	d.passOver(e.Key, tasks, e.Seq)
}

// passOver notes that nothing is told of a key behind some tasks, up to a seq.
func (d *durable) passOver(key string, tasks []*task, seq uint64) {
	if len(tasks) == 0 {
		d.settled[key] = max(d.settled[key], seq)
		return
	}
	t := tasks[len(tasks)-1]
	t.last, t.more = max(t.last, seq), false
}

// passInherited forgets what an earlier life left once the cursor is past it.
func (d *durable) passInherited() {
	if d.cursor >= d.inheritedTo {
		clear(d.inherited)
	}
}
