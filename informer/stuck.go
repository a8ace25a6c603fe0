package informer

import (
	"errors"
	"slices"

	"github.com/kubewake/kubewake/boltstore"
)

// What is stuck is moved to the file when memory is full: keys that wait for
// their retry, and those that have been told of and not acknowledged for long.
// What is left of them here says only how far they are parked.

// parkAtOnce bounds what one commit parks, in bytes.
const parkAtOnce = 1 << 20

// block notes that filling waits for room, and makes some if keys are stuck.
// The caller holds the mutex.
func (d *durable) block() {
	d.blocked = true
	for _, q := range d.keys {
		if d.stuck(q) {
			d.changed()
			d.inf.store.Flush()
			break
		}
	}
	if !d.looking {
		d.looking = true
		d.retryAt(nil, d.inf.o.Clock.Now().Add(d.o.StuckAfter))
	}
}

func (d *durable) stuck(q *keyQueue) bool {
	if q.busy || q.loading || q.ready || q.dropped || len(q.tasks) == 0 || q.tasks[0].reset || q.tasks[len(q.tasks)-1].entry == nil {
		return false
	}
	return q.waiting || q.told >= min(len(q.tasks), aheadOfAck) && d.inf.o.Clock.Since(q.since) >= d.o.StuckAfter
}

// park makes a key part of the commit, if it is stuck.
func (d *durable) park(p *boltstore.Position, q *keyQueue) bool {
	if len(p.Park) > 0 && d.parkingBytes >= parkAtOnce || !d.stuck(q) {
		return false
	}
	if len(p.Park) == 0 {
		d.parkingBytes = 0
	}
	var entries []*boltstore.Entry
	for _, t := range q.tasks {
		if t.entry == nil {
			continue
		}
		t.parking = true
		d.parking = append(d.parking, t)
		if !t.parked {
			d.parkingBytes += t.size()
			entries = append(entries, t.entry)
		}
	}
	p.Park = append(p.Park, boltstore.Parking{Key: q.key, Entries: entries})
	return true
}

// parkedNow forgets what the file has, unless the handler is being told of it
// by now.
func (d *durable) parkedNow() {
	for _, t := range d.parking {
		t.parking, t.parked, t.first = false, true, 0
	}
	if len(d.parking) > 0 {
		d.parking = nil
		for _, q := range d.keys {
			if !d.stuck(q) {
				continue
			}
			if !slices.ContainsFunc(q.tasks, func(t *task) bool { return !t.parked }) {
				d.letGo(q)
			}
		}
	}
	if d.blocked && d.full() {
		d.block() // there may be more
	}
	d.unblock()
}

// letGo keeps of a key, all of which the file has, only what has been told, and
// how far it is parked. The caller holds the mutex.
func (d *durable) letGo(q *keyQueue) {
	for _, t := range q.tasks {
		d.hold(t, -1)
		t.entry = nil
	}
	if at, last := q.untold(), len(q.tasks)-1; at < last {
		q.tasks = append(q.tasks[:at:at], q.tasks[last])
	}
}

// alone says whether nothing can be told but what is to be read from the file:
// then that must not wait for room, which what waits behind it may have taken.
// The caller holds the mutex.
func (d *durable) alone() bool {
	return len(d.loads) > 0 && d.calls < d.o.Workers && len(d.ready) == 0 && !d.resetDue && !d.resetting
}

// reload reads what is parked of keys that are to be told again, as far as there
// is room or must be, and says whether there was any.
func (d *durable) reload(room bool) bool {
	d.mu.Lock()
	n := 0
	switch {
	case len(d.loads) == 0:
	case room:
		n = 64
	case d.alone():
		n = 1
	}
	d.mu.Unlock()
	return n > 0 && d.fillLoads(n)
}

// fillLoads reads what is parked of keys that are to be told again, of most at
// once.
func (d *durable) fillLoads(most int) bool {
	d.mu.Lock()
	loads, shownAt, persisted := d.loads[:min(len(d.loads), most)], d.shownAt, d.persisted
	d.mu.Unlock()
	var keys []string
	for _, q := range loads {
		keys = append(keys, q.key)
	}
	p, err := d.h.ParkedOf(keys, shownAt)
	switch {
	case errors.Is(err, boltstore.ErrDamaged):
		d.damaged(err)
		return true
	case err != nil:
		return false // closed, or removed
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.persisted != persisted {
		return true
	}
	d.loads = d.loads[len(loads):]
	at := map[string]int{}
	for i, key := range p.Keys {
		at[key] = i
	}
	for _, q := range loads {
		q.loading = false
		var last uint64
		var entries []*boltstore.Entry
		if i, ok := at[q.key]; ok {
			last, entries = p.Last[i], p.Entries[i]
		}
		d.replace(q, last, entries)
		d.settle(q)
	}
	return true
}
