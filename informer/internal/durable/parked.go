package durable

import (
	"errors"
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// unparking is the walk over the handler's parked keys in the file.
type unparking struct {
	walk
	to uint64 // the cursor when the walk began
}

// Parked entries are read from the file when a life begins, and when a commit has parked
// entries that were not taken in yet. They are also read when a key that was moved out of
// memory must be told again.

// fillParked takes in a page of parked keys. The cursor first goes to the file's
// mark: the entries between are parked or acknowledged.
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
		return true // the page may have keys that are in hand and gone from the file
	}
	if !d.parked.begun {
		d.parked.to = d.pos.cursor
		if d.parked.active { // keys of an earlier life
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
	d.pos.passInherited()
	d.claim.Changed()
	return true
}

// unpark takes in the parked entries of one key, unless they are in hand.
func (d *Handler) unpark(key string, last uint64, entries []*boltstore.Entry) {
	// Objects of the first list have no seq: theirs is 0.
	if last <= d.parked.to && d.parked.to > 0 {
		return
	}
	if seq, ok := d.pos.acked(key); ok && seq >= last {
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
	d.queues.takeAcked(q)
}

// replace puts the parked entries of a key in place of its tasks up to last that were not
// told. It leaves out entries that are left to the replay, such as outdated ones. It also
// leaves out deletes before the last task that was told or acknowledged: the handler knows
// of these, or need not know.
func (d *Handler) replace(q *keyQueue, last uint64, entries []*boltstore.Entry) {
	for _, e := range entries {
		d.showAgain(e)
	}
	at := q.untold()
	told, rest := q.tasks[:at:at], q.tasks[at:]
	// Collapsed tasks are only useful as a whole. If the parked entries end among them,
	// the tasks tell the rest.
	among := slices.ContainsFunc(rest, func(t *task) bool { return t.first > 0 && t.first <= last && last < t.seq })
	// An object that the replay has shown stays if the parked entries begin with it.
	updated := slices.ContainsFunc(entries, func(e *boltstore.Entry) bool { return e.Type == cache.Updated })
	upto, initial := uint64(0), false
	rest = slices.DeleteFunc(slices.Clone(rest), func(t *task) bool {
		if !t.away() && !t.parked && (among || t.seq > last || t.initial && updated) {
			return false
		}
		d.queues.memory.hold(t, -1)
		upto, initial = max(upto, t.last), initial || t.initial
		return true
	})
	if !among {
		upto = max(upto, last)
	}
	before, _ := d.pos.acked(q.key)
	for _, t := range told {
		before = max(before, t.seq)
	}
	tasks := group(slices.DeleteFunc(entries, func(e *boltstore.Entry) bool {
		return !d.due(e) || e.Type == cache.Deleted && e.Seq <= before || among && (e.Type != cache.Deleted || e.Seq > upto)
	}), upto)
	for _, t := range tasks {
		t.parked, t.initial = true, initial && t.entry.Type == cache.Added
		d.queues.memory.hold(t, 1)
	}
	if len(tasks) == 0 {
		d.pos.passOver(q.key, told, upto)
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

// tellAdded makes the first object an Added: the handler was not told the state before
// it.
func tellAdded(tasks []*task) {
	for _, t := range tasks {
		if t.entry.Type != cache.Deleted {
			t.added = true
			return
		}
	}
}

// reload reads the parked entries of keys that must be told again, if there is room or
// nothing else can go on. It says whether there was any.
func (d *Handler) reload(room bool) bool {
	d.mu.Lock()
	n := 0
	switch {
	case len(d.queues.loads) == 0:
	case room:
		n = 64
	case d.queues.alone():
		n = 1
	}
	d.mu.Unlock()
	return n > 0 && d.fillLoads(n)
}

// fillLoads reads the parked entries of keys that must be told again, of at most the
// given number of keys.
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
		d.queues.takeAcked(q)
	}
	return true
}
