package durable

import (
	"slices"

	"github.com/kubewake/kubewake/boltstore"
)

// parking is what the commit under way moves from memory to the file.
type parking struct {
	tasks   []*task
	bytes   int
	looking bool // a look for stuck keys is among the retries
}

// What is stuck is moved to the file when memory is full: keys that wait for
// their retry, and those that have been told of and not acknowledged for long.
// What is left of them here says only how far they are parked.

// parkAtOnce bounds what one commit parks, in bytes.
const parkAtOnce = 1 << 20

func (d *Handler) isStuck(q *keyQueue) bool {
	if q.busy || q.loading || q.ready || q.dropped || len(q.tasks) == 0 || q.tasks[0].reset || q.tasks[len(q.tasks)-1].entry == nil {
		return false
	}
	return q.waiting || q.told >= min(len(q.tasks), AheadOfAck) && d.host.Clock.Since(q.since) >= d.o.StuckAfter
}

// park makes a key part of the commit, if it is stuck.
func (d *Handler) park(p *boltstore.Position, q *keyQueue) bool {
	if len(p.Park) > 0 && d.parking.bytes >= parkAtOnce || !d.isStuck(q) {
		return false
	}
	if len(p.Park) == 0 {
		d.parking.bytes = 0
	}
	var entries []*boltstore.Entry
	for _, t := range q.tasks {
		if t.entry == nil {
			continue
		}
		t.parking = true
		d.parking.tasks = append(d.parking.tasks, t)
		if !t.parked {
			d.parking.bytes += t.size()
			entries = append(entries, t.entry)
		}
	}
	p.Park = append(p.Park, boltstore.Parking{Key: q.key, Entries: entries})
	return true
}

// parkedNow forgets what the file has, unless the handler is being told of it
// by now.
func (d *Handler) parkedNow() {
	for _, t := range d.parking.tasks {
		t.parking, t.parked, t.first = false, true, 0
	}
	if len(d.parking.tasks) > 0 {
		d.parking.tasks = nil
		for _, q := range d.queues.ofKey {
			if !d.isStuck(q) {
				continue
			}
			if !slices.ContainsFunc(q.tasks, func(t *task) bool { return !t.parked }) {
				d.letGo(q)
			}
		}
	}
	if d.memory.blocked && d.full() {
		d.block() // there may be more
	}
	d.unblock()
}

// letGo keeps of a key, all of which the file has, only what has been told, and
// how far it is parked. The caller holds the mutex.
func (d *Handler) letGo(q *keyQueue) {
	for _, t := range q.tasks {
		d.hold(t, -1)
		t.entry = nil
	}
	if at, last := q.untold(), len(q.tasks)-1; at < last {
		q.tasks = append(q.tasks[:at:at], q.tasks[last])
	}
}
