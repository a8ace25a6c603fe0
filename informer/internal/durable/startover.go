package durable

import (
	"k8s.io/apimachinery/pkg/util/sets"
)

// startOver is where the handler is in starting over.
type startOver struct {
	resetting   bool // told to start over and not acknowledged
	resetDue    bool
	anew        bool // it has started over, and the file does not say so yet
	leavingAnew bool // the commit under way does
	lost        bool // the file's position is: it starts over
	overs       int  // counts how often it started over
}

// startOver drops what is in hand. The caller holds the mutex.
func (d *Handler) startOver(epoch, seq uint64) {
	for _, q := range d.queues.ofKey {
		q.dropped = true
		d.o.RateLimiter.Forget(q.key)
	}
	d.queues.ofKey, d.queues.due, d.queues.loads, d.parking.tasks = map[string]*keyQueue{}, nil, nil, nil
	d.memory.held, d.memory.bytes = 0, 0
	d.pos.inherited, d.pos.inheritedTo, d.pos.settled = map[string]uint64{}, 0, map[string]uint64{}
	d.replay.shown, d.replay.shownAt = sets.New[string](), 0
	d.pos.epoch, d.pos.known, d.pos.cursor, d.pos.mark = epoch, 0, seq, seq
	d.pos.reach = 0
	d.over.overs++
	d.parked.walk, d.replay.walk = walk{}, walk{active: true}
	d.over.resetDue, d.over.resetting, d.over.lost = true, false, false
	d.over.anew, d.over.leavingAnew = true, false
	d.changed()
	d.host.Store.Flush()
}

// damaged starts over because part of what is to be told cannot be read.
func (d *Handler) damaged(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.startAnew(err)
}

// startAnew is damaged for who holds the mutex.
func (d *Handler) startAnew(err error) {
	d.log.Error(err, "Part of what a durable handler has to be told is damaged, it has to start over", "source", d.host.Store.Source().String(), "handler", d.name)
	d.startOver(d.pos.epoch, d.host.Store.State().Seq)
}
