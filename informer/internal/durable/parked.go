package durable

import (
	"errors"
	"slices"

	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/client-go/tools/cache"
)

// unparking is the walk over what the file has parked for the handler.
type unparking struct {
	walk
	to uint64 // the cursor when the walk began
}

// What the file has parked of keys is read when a life begins, when the file has
// parked what was not taken in yet, and when a key is to be told again that was
// moved out of memory.

// fillParked takes in a page of what is parked. It begins with the cursor
// behind the file's mark: what is between is parked or acknowledged.
func (d *Handler) fillParked() bool {
	d.mu.Lock()
	from, shownAt, persisted := d.parked.next, d.replay.shownAt, d.pos.persisted
	d.mu.Unlock()
	p, err := d.claim.Parked(from, 64, shownAt)
	switch {
	case errors.Is(err, boltstore.ErrDamaged):
		d.damaged(err)
		return true
	case err != nil:
		return false // closed, or removed
	}
	if d.host.Store.Epoch() != d.pos.epoch {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pos.persisted != persisted {
		return true // what is gone from the file by now may be in hand
	}
	if !d.parked.begun {
		d.parked.to = d.pos.cursor
		if d.parked.active { // of an earlier life
			d.parked.to = 0
		}
		d.parked.walk = walk{active: true, begun: true}
		d.pos.cursor = max(d.pos.cursor, p.Mark)
	}
	d.pos.mark = max(d.pos.mark, p.Mark)
	for i, key := range p.Keys {
		d.unpark(key, p.Last[i], p.Entries[i])
	}
	if d.parked.next = p.Next; p.Next == nil {
		d.parked.walk = walk{}
	}
	d.passInherited()
	d.changed()
	return true
}

// unpark takes in what is parked of one key, unless it is in hand.
func (d *Handler) unpark(key string, last uint64, entries []*boltstore.Entry) {
	// Objects of the first list have no seq: theirs is 0.
	if last <= d.parked.to && d.parked.to > 0 {
		return
	}
	if seq, ok := d.acked(key); ok && seq >= last {
		return
	}
	q := d.queues.ofKey[key]
	if q == nil {
		q = &keyQueue{key: key}
		d.queues.ofKey[key] = q
	}
	for _, t := range q.tasks {
		if t.last >= last {
			return
		}
	}
	d.replace(q, last, entries)
	d.settle(q)
}

// replace puts what the file has parked of a key in the place of what has not
// been told of it up to there, but for what is left to the replay, and for
// deletes of before what has been told or acknowledged: these have been, too, or
// need not be.
func (d *Handler) replace(q *keyQueue, last uint64, entries []*boltstore.Entry) {
	at := q.untold()
	told, rest := q.tasks[:at:at], q.tasks[at:]
	// Entries that were collapsed are of use as a whole only: where what is
	// parked ends among them, they tell the rest of it.
	among := slices.ContainsFunc(rest, func(t *task) bool { return t.first > 0 && t.first <= last && last < t.seq })
	// What the replay has shown stays if what is parked begins with it.
	updated := slices.ContainsFunc(entries, func(e *boltstore.Entry) bool { return e.Type == cache.Updated })
	upto, initial := uint64(0), false
	rest = slices.DeleteFunc(slices.Clone(rest), func(t *task) bool {
		if !t.away() && !t.parked && (among || t.seq > last || t.initial && updated) {
			return false
		}
		d.hold(t, -1)
		upto, initial = max(upto, t.last), initial || t.initial
		return true
	})
	if !among {
		upto = max(upto, last)
	}
	before, _ := d.acked(q.key)
	for _, t := range told {
		before = max(before, t.seq)
	}
	tasks := group(slices.DeleteFunc(entries, func(e *boltstore.Entry) bool {
		return !d.due(e) || e.Type == cache.Deleted && e.Seq <= before || among && (e.Type != cache.Deleted || e.Seq > upto)
	}), upto)
	for _, t := range tasks {
		t.parked, t.initial = true, initial && t.entry.Type == cache.Added
		d.hold(t, 1)
	}
	if len(tasks) == 0 {
		d.passOver(q.key, told, upto)
	}
	n := len(tasks)
	if len(rest) > 0 && rest[0].initial {
		for n > 0 && tasks[n-1].seq > rest[0].seq {
			n--
		}
		tasks = slices.Insert(tasks, n, rest[0])
		rest = rest[1:]
	}
	q.tasks = slices.Concat(told, tasks, rest)
	if among {
		tellAdded(q.tasks[at:])
	}
}

// tellAdded has an update that comes first told as Added: what was before it has
// not been told.
func tellAdded(tasks []*task) {
	for _, t := range tasks {
		if t.entry.Type != cache.Deleted {
			t.added = true
			return
		}
	}
}

// reload reads what is parked of keys that are to be told again, as far as there
// is room or must be, and says whether there was any.
func (d *Handler) reload(room bool) bool {
	d.mu.Lock()
	n := 0
	switch {
	case len(d.queues.loads) == 0:
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
func (d *Handler) fillLoads(most int) bool {
	d.mu.Lock()
	loads, shownAt, persisted := d.queues.loads[:min(len(d.queues.loads), most)], d.replay.shownAt, d.pos.persisted
	d.mu.Unlock()
	var keys []string
	for _, q := range loads {
		keys = append(keys, q.key)
	}
	p, err := d.claim.ParkedOf(keys, shownAt)
	switch {
	case errors.Is(err, boltstore.ErrDamaged):
		d.damaged(err)
		return true
	case err != nil:
		return false // closed, or removed
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.pos.persisted != persisted {
		return true
	}
	d.queues.loads = d.queues.loads[len(loads):]
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
