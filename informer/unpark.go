package informer

import (
	"errors"
	"slices"

	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/client-go/tools/cache"
)

// What the file has parked of keys is read when a life begins, when the file has
// parked what was not taken in yet, and when a key is to be told again that was
// moved out of memory.

// fillParked takes in a page of what is parked. It begins with the cursor
// behind the file's mark: what is between is parked or acknowledged.
func (d *durable) fillParked() bool {
	d.mu.Lock()
	from, shownAt, persisted := d.parked.next, d.shownAt, d.persisted
	d.mu.Unlock()
	p, err := d.h.Parked(from, 64, shownAt)
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
	if seq, ok := d.acked(key); ok && seq >= last {
		return
	}
	q := d.keys[key]
	if q == nil {
		q = &keyQueue{key: key}
		d.keys[key] = q
	}
	for _, t := range q.tasks {
		if t.last >= last {
			return
		}
	}
	d.replace(q, last, entries)
	d.settle(q)
}

// acked is the seq up to which a key was acknowledged, as far as the file may
// not say so yet.
func (d *durable) acked(key string) (seq uint64, ok bool) {
	settled, ok := d.settled[key]
	leaving, left := d.leaving[key]
	return max(settled, leaving), ok || left
}

// replace puts what the file has parked of a key in the place of what has not
// been told of it up to there, but for what is left to the replay, and for
// deletes of before what has been told or acknowledged: these have been, too, or
// need not be.
func (d *durable) replace(q *keyQueue, last uint64, entries []*boltstore.Entry) {
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
