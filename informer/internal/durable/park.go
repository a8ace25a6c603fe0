package durable

import (
	"slices"

	"github.com/kubewake/kubewake/boltstore"
)

// parking has the tasks that the commit under way moves from memory to the file.
type parking struct {
	tasks []*task
	bytes int
}

// When memory is full, stuck keys are moved to the file. A stuck key waits for its retry, has
// gone unacknowledged for long, or is kept for the next life. Their
// remaining tasks in memory only say how far they are parked.

// parkAtOnce bounds what one commit parks, in bytes.
const parkAtOnce = 1 << 20

// isStuck says whether a key may be moved to the file.
func (s *queues) isStuck(q *keyQueue) bool {
	if q.busy || q.loading || q.ready || q.dropped || len(q.tasks) == 0 || q.tasks[0].reset || q.tasks[len(q.tasks)-1].entry == nil {
		return false
	}
	return q.waiting || (q.told == len(q.tasks) || q.unacked() >= AheadOfAck) && (q.kept || s.host.Clock.Since(q.since) >= s.o.StuckAfter)
}

// offerForParking adds a key to the commit if it is stuck. It says whether it has.
func (d *Handler) offerForParking(p *boltstore.Position, q *keyQueue) bool {
	if len(p.Park) > 0 && d.parking.bytes >= parkAtOnce || !d.queues.isStuck(q) {
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

// parkedNow notes that the commit has succeeded. It drops tasks from memory that the file
// now has, unless the handler is being told them.
func (d *Handler) parkedNow() {
	for _, t := range d.parking.tasks {
		t.parking, t.parked, t.first = false, true, 0
	}
	if len(d.parking.tasks) > 0 {
		d.parking.tasks = nil
		for _, q := range d.queues.ofKey {
			if !d.queues.isStuck(q) {
				continue
			}
			if !slices.ContainsFunc(q.tasks, func(t *task) bool { return !t.parked }) {
				d.queues.letGo(q)
			}
		}
	}
	if d.queues.memory.blocked && d.queues.memory.full(&d.o) {
		d.block() // there may be more
	}
	d.queues.unblock()
}

// letGo drops the entries of a key that the file has completely. The tasks that were told
// remain, and one that says how far the key is parked. Of tasks acknowledged behind an
// unacknowledged one, only the last remains.
func (s *queues) letGo(q *keyQueue) {
	for _, t := range q.tasks {
		s.memory.hold(t, -1)
		t.entry = nil
	}
	at, last := q.untold(), len(q.tasks)-1
	told, rest := q.tasks[:at:at], q.tasks[at:]
	if at < last {
		rest = q.tasks[last:]
	}
	if at > 0 {
		end := told[at-1]
		told = slices.DeleteFunc(slices.Clone(told), func(t *task) bool { return t.acked && t != end })
	}
	q.told, q.tasks = len(told), slices.Concat(told, rest)
}
