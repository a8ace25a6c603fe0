package informer

import (
	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/apimachinery/pkg/util/sets"
)

// load takes up the position that the file has.
func (d *durable) load(p boltstore.Position, mark uint64, known bool) {
	d.epoch, d.cursor, d.mark = p.Epoch, mark, mark
	d.inherited, d.inheritedTo = p.Pending, max(p.Cursor, mark)
	if d.inherited == nil {
		d.inherited = map[string]uint64{}
	}
	d.shown, d.shownAt = sets.New(p.Shown...), p.ShownAt
	d.replay = walk{active: p.Replaying, begun: p.Next != nil, next: p.Next}
	d.parked = walk{active: known}
	d.resetDue = p.Reset
}

// Position implements boltstore.Positioner.
func (d *durable) Position() boltstore.Position {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := boltstore.Position{
		Epoch: d.epoch, Cursor: max(d.cursor, d.inheritedTo), Pending: map[string]uint64{},
		Replaying: d.replay.active, Next: d.replay.next, Shown: d.shown.UnsortedList(), ShownAt: d.shownAt, Reset: d.resetting || d.resetDue,
	}
	if d.reach == 0 { // else a commit has failed, and may be in the file all the same
		d.reach = max(p.Cursor, d.mark) + aheadOfCommit
	}
	p.Reach = d.reach
	for key, first := range d.inherited {
		p.Pending[key] = first
	}
	for _, t := range d.parking {
		t.parking = false
	}
	d.parking = nil
	for key, q := range d.keys {
		if d.blocked && d.park(&p, q) {
			continue
		}
		for _, t := range q.tasks {
			if t.initial && !t.parked && !d.shown.Has(key) {
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
	if d.leaving == nil {
		d.leaving, d.settled = d.settled, map[string]uint64{}
	} else { // the commit that it was part of has failed
		for key, seq := range d.settled {
			d.leaving[key] = max(d.leaving[key], seq)
		}
		clear(d.settled)
	}
	d.leavingAnew = d.anew
	p.Settled, p.Anew = d.leaving, d.anew
	return p
}

// Persisted implements boltstore.Positioner.
func (d *durable) Persisted(mark uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leaving = nil
	if d.anew && d.leavingAnew {
		d.anew = false
		d.inf.backlog.Wake()
	}
	d.mark = max(d.mark, mark)
	d.persisted++
	d.reach = 0
	if d.fenced {
		d.fenced = false
		d.inf.backlog.Wake()
	}
	d.parkedNow()
}

// Lost implements boltstore.Positioner.
func (d *durable) Lost() {
	d.mu.Lock()
	d.lost = !d.anew || d.leavingAnew // else it has started over since it was asked
	d.mu.Unlock()
	d.inf.backlog.Wake()
}

func (d *durable) changed() { d.h.Changed() }
