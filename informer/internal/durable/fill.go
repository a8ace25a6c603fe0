package durable

import (
	"errors"
	"fmt"

	"github.com/kubewake/kubewake/boltstore"
)

// One goroutine fills the queues of keys with the tasks that the handler has to be told.

// aheadOfCommit is how many entries a handler that is behind takes in while a commit
// is under way.
const aheadOfCommit = 1024

// fill takes more into the queues. It says whether there is more to do at once.
func (d *Handler) fill() bool {
	room := d.room()
	if d.reload(room) {
		return true
	}
	d.mu.Lock()
	parked, replaying := d.parked.active || d.pos.mark > d.pos.cursor, d.replay.active || len(d.replay.shown) > 0
	d.mu.Unlock()
	switch {
	case !room:
		return false
	case parked:
		return d.fillParked()
	case replaying:
		return d.fillReplay()
	}
	return d.fillEntries(d.host.Backlog.Last())
}

// room says whether anything may be taken in. It begins a start-over if one is due. Until
// that is acknowledged, nothing is taken in.
func (d *Handler) room() bool {
	epoch := d.host.Store.Epoch()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case epoch != d.pos.epoch:
		d.startOver(epoch, d.host.Store.State().Seq)
	case d.startingOver.phase == phaseAsked:
		d.damagedLocked(errors.New("its position could not be read"))
	}
	switch {
	case d.startingOver.owed():
		// The last call that returns wakes this goroutine, or the commit does, or the
		// acknowledgement.
		if d.queues.calls == 0 && d.startingOver.tell() {
			d.queues.add("", &task{reset: true})
		}
		return false
	case d.queues.memory.full(&d.o):
		d.block()
		return false
	}
	return true
}

// fillEntries takes in entries behind the cursor, up to a seq, as many as come at
// once. It says whether there was any.
func (d *Handler) fillEntries(upto uint64) bool {
	d.mu.Lock()
	from, epoch := d.pos.cursor+1, d.pos.epoch
	d.mu.Unlock()
	d.host.Backlog.Needs(d, from)
	if from > upto {
		return false
	}
	entries, inFile := d.host.Backlog.From(from)
	if inFile {
		var mark uint64
		var err error
		entries, mark, err = d.claim.ReadJournal(from)
		switch {
		case errors.Is(err, boltstore.ErrDamaged):
			d.damaged(err)
			return true
		case err != nil:
			return false // the file is closed, or fails; the next event tries again
		case mark >= from:
			d.mu.Lock()
			d.pos.mark = max(d.pos.mark, mark)
			d.mu.Unlock()
			return true
		}
	}
	if d.host.Store.Epoch() != epoch {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case len(entries) == 0 && inFile:
		d.damagedLocked(fmt.Errorf("journal entries from %d on are missing: %w", from, boltstore.ErrDamaged))
		return true
	case len(entries) == 0:
		return false
	case entries[0].Seq != from:
		d.damagedLocked(fmt.Errorf("journal entries from %d to %d are missing: %w", from, entries[0].Seq-1, boltstore.ErrDamaged))
		return true
	}
	return d.takeInLocked(entries, upto)
}

// takeInLocked takes in entries up to a seq, until one has to wait. It says whether it took
// all of them. They are not empty.
func (d *Handler) takeInLocked(entries []*boltstore.Entry, upto uint64) bool {
	for _, e := range entries {
		if e.Seq > upto {
			break
		}
		if d.pos.reach > 0 && e.Seq > d.pos.reach {
			d.pos.fenced = true
			d.claim.Changed()
			return false
		}
		if d.queues.memory.full(&d.o) {
			d.block()
			return false
		}
		first, pending := d.pos.inherited[e.Key]
		switch unacked := e.Seq > d.pos.inheritedTo || pending && first <= e.Seq; {
		case unacked && d.due(e) && !d.showAgain(e):
			d.queues.add(e.Key, &task{entry: e, seq: e.Seq, first: e.Seq, last: e.Seq})
		case unacked:
			d.leave(e)
		}
		if pending {
			d.pos.inherited[e.Key] = max(first, e.Seq+1)
		}
		d.pos.cursor = e.Seq
		d.pos.passInherited()
	}
	d.claim.Changed()
	return true
}

// leave notes that an entry is left to the replay. A commit may be parking it now. A
// parked entry then counts as acknowledged together with the key's earlier tasks.
func (d *Handler) leave(e *boltstore.Entry) {
	var tasks []*task
	if q := d.queues.ofKey[e.Key]; q != nil {
		tasks = q.tasks
	}
	d.pos.passOver(e.Key, tasks, e.Seq)
}
