package durable

import (
	"errors"
	"fmt"

	"github.com/kubewake/kubewake/boltstore"
)

// Filling takes into the queues of keys what a durable handler has to be told,
// in one goroutine.

// aheadOfCommit is how many entries a handler that is behind takes in while a
// commit is under way.
const aheadOfCommit = 1024

// fill takes more into the queues, and says whether there is more to do at once.
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

// room says whether something may be taken in. It starts over where that is
// due, and nothing is taken in before that is acknowledged.
func (d *Handler) room() bool {
	epoch := d.host.Store.Epoch()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case epoch != d.pos.epoch:
		d.startOver(epoch, d.host.Store.State().Seq)
	case d.over.phase == phaseAsked:
		d.damagedLocked(errors.New("its position could not be read"))
	}
	switch {
	case d.over.owed():
		// The last call to return wakes us, or the commit, or the acknowledgement.
		if d.queues.calls == 0 && d.over.tell() {
			d.add("", &task{reset: true})
		}
		return false
	case d.full():
		d.block()
		return false
	}
	return true
}

// fillEntries takes in entries behind the cursor, up to a seq, as much as comes
// at once, and says whether there was any.
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
	for _, e := range entries {
		if e.Seq > upto {
			break
		}
		if d.pos.reach > 0 && e.Seq > d.pos.reach {
			d.pos.fenced = true
			d.changed()
			return false
		}
		if d.full() {
			d.block()
			return false
		}
		first, pending := d.pos.inherited[e.Key]
		switch unacked := e.Seq > d.pos.inheritedTo || pending && first <= e.Seq; {
		case unacked && d.due(e):
			d.add(e.Key, &task{entry: e, seq: e.Seq, first: e.Seq, last: e.Seq})
		case unacked:
			d.leave(e)
		}
		if pending {
			d.pos.inherited[e.Key] = max(first, e.Seq+1)
		}
		d.pos.cursor = e.Seq
		d.passInherited()
	}
	d.changed()
	return true
}

// leave notes that an entry is left to the replay. A commit may be parking it
// now: that goes with what is told of the key before.
func (d *Handler) leave(e *boltstore.Entry) {
	var tasks []*task
	if q := d.queues.ofKey[e.Key]; q != nil {
		tasks = q.tasks
	}
	d.passOver(e.Key, tasks, e.Seq)
}

// passOver notes that nothing is told of a key behind some tasks, up to a seq.
func (d *Handler) passOver(key string, tasks []*task, seq uint64) {
	if len(tasks) == 0 {
		d.pos.settled[key] = max(d.pos.settled[key], seq)
		return
	}
	t := tasks[len(tasks)-1]
	t.last, t.more = max(t.last, seq), false
}
