package durable

import (
	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/apimachinery/pkg/util/sets"
)

// position is how far the handler has come, as its record in the file says it.
type position struct {
	epoch uint64
	// known is one above the last seq of an earlier life that the handler was
	// registered in, 0 without one.
	known  uint64
	cursor uint64 // entries up to it have been taken into the queues
	mark   uint64 // the file's: entries up to it may have been parked

	persisted uint64 // counts commits
	// reach is the seq up to which entries are taken in before Persisted, which
	// the commit under way has been told; 0 without one.
	reach  uint64
	fenced bool // it has been reached, filling waits

	// inherited are the first unacknowledged entries behind the cursor of keys,
	// of an earlier life, as long as the cursor is below inheritedTo.
	inherited   map[string]uint64
	inheritedTo uint64
	// settled and leaving are what was acknowledged since the last commit, and
	// is part of the one under way.
	settled, leaving map[string]uint64
}

// load takes up the position that the file has.
func (d *Handler) load(p boltstore.Position, mark uint64, known bool) {
	d.pos.epoch, d.pos.cursor, d.pos.mark = p.Epoch, mark, mark
	d.pos.inherited, d.pos.inheritedTo = p.Pending, max(p.Cursor, mark)
	if d.pos.inherited == nil {
		d.pos.inherited = map[string]uint64{}
	}
	d.replay.shown, d.replay.shownAt = sets.New(p.Shown...), p.ShownAt
	d.replay.walk = walk{active: p.Replaying, begun: p.Next != nil, next: p.Next}
	d.parked.walk = walk{active: known}
	d.over.load(p.Reset)
}

// Position implements boltstore.Positioner.
func (d *Handler) Position() boltstore.Position {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := boltstore.Position{
		Epoch: d.pos.epoch, Cursor: max(d.pos.cursor, d.pos.inheritedTo), Pending: map[string]uint64{},
		Replaying: d.replay.active, Next: d.replay.next, Shown: d.replay.shown.UnsortedList(), ShownAt: d.replay.shownAt, Reset: d.over.owed(),
	}
	if d.pos.reach == 0 { // else a commit has failed, and may be in the file all the same
		d.pos.reach = max(p.Cursor, d.pos.mark) + aheadOfCommit
	}
	p.Reach = d.pos.reach
	for key, first := range d.pos.inherited {
		p.Pending[key] = first
	}
	for _, t := range d.parking.tasks {
		t.parking = false
	}
	d.parking.tasks = nil
	for key, q := range d.queues.ofKey {
		if d.memory.blocked && d.park(&p, q) {
			continue
		}
		for _, t := range q.tasks {
			if t.initial && !t.parked && !d.replay.shown.Has(key) {
				p.Shown = append(p.Shown, key)
			}
			if t.first > 0 && !t.parked {
				if first, ok := p.Pending[key]; !ok || t.first < first {
					p.Pending[key] = t.first
				}
				break
			}
		}
	}
	if d.pos.leaving == nil {
		d.pos.leaving, d.pos.settled = d.pos.settled, map[string]uint64{}
	} else { // the commit that it was part of has failed
		for key, seq := range d.pos.settled {
			d.pos.leaving[key] = max(d.pos.leaving[key], seq)
		}
		clear(d.pos.settled)
	}
	p.Settled, p.Anew = d.pos.leaving, d.over.report()
	return p
}

// Persisted implements boltstore.Positioner.
func (d *Handler) Persisted(mark uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pos.leaving = nil
	if d.over.commit() {
		d.host.Backlog.Wake()
	}
	d.pos.mark = max(d.pos.mark, mark)
	d.pos.persisted++
	d.pos.reach = 0
	if d.pos.fenced {
		d.pos.fenced = false
		d.host.Backlog.Wake()
	}
	d.parkedNow()
}

// Lost implements boltstore.Positioner.
func (d *Handler) Lost() {
	d.mu.Lock()
	d.over.ask()
	d.mu.Unlock()
	d.host.Backlog.Wake()
}

func (d *Handler) changed() { d.claim.Changed() }

// passInherited forgets what an earlier life left once the cursor is past it.
func (d *Handler) passInherited() {
	if d.pos.cursor >= d.pos.inheritedTo {
		clear(d.pos.inherited)
	}
}

// acked is the seq up to which a key was acknowledged, as far as the file may
// not say so yet.
func (d *Handler) acked(key string) (seq uint64, ok bool) {
	settled, ok := d.pos.settled[key]
	leaving, left := d.pos.leaving[key]
	return max(settled, leaving), ok || left
}
