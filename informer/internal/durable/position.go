package durable

import (
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kubewake/kubewake/boltstore"
)

// position says how far the handler has come.
type position struct {
	epoch  uint64
	cursor uint64 // entries up to it have been taken into the queues
	mark   uint64 // the file's: entries up to it may have been parked

	persisted uint64 // counts commits
	// reach is the seq up to which entries are taken in before Persisted is called, as
	// reported to the commit under way. 0 without a commit.
	reach  uint64
	fenced bool // the cursor has reached it, and filling waits

	// inherited has keys of an earlier life, each with its first unacknowledged
	// entry, as long as the cursor is below inheritedTo.
	inherited   map[string]uint64
	inheritedTo uint64
	// settled has the keys of which something was acknowledged since the last commit,
	// each with the seq up to which it was. leaving has those in the commit under way.
	settled, leaving map[string]uint64
}

// load takes up the file's position. known says that an earlier registration left it.
func (d *Handler) load(p boltstore.Position, mark uint64, known bool) {
	d.pos.epoch, d.pos.cursor, d.pos.mark = p.Epoch, mark, mark
	d.pos.inherited, d.pos.inheritedTo = p.Pending, max(p.Cursor, mark)
	if d.pos.inherited == nil {
		d.pos.inherited = map[string]uint64{}
	}
	d.replay.shown, d.replay.shownAt = sets.New(p.Shown...), p.ShownAt
	d.replay.walk = walk{active: p.Replaying, begun: p.Next != nil, next: p.Next}
	d.parked.walk = walk{active: known}
	d.startingOver.load(p.Reset)
}

// Position implements boltstore.Positioner.
func (d *Handler) Position() boltstore.Position {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := boltstore.Position{
		Epoch: d.pos.epoch, Cursor: max(d.pos.cursor, d.pos.inheritedTo), Pending: map[string]uint64{},
		Replaying: d.replay.active, Next: d.replay.next, Shown: d.replay.shown.UnsortedList(), ShownAt: d.replay.shownAt, Reset: d.startingOver.owed(),
	}
	if d.pos.reach == 0 { // otherwise a commit has failed, and may still be in the file
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
		if d.queues.memory.blocked && d.offerForParking(&p, q) {
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
	} else { // the last commit has failed
		for key, seq := range d.pos.settled {
			d.pos.leaving[key] = max(d.pos.leaving[key], seq)
		}
		clear(d.pos.settled)
	}
	p.Settled, p.StartedOver = d.pos.leaving, d.startingOver.report()
	return p
}

// Persisted implements boltstore.Positioner.
func (d *Handler) Persisted(mark uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pos.leaving = nil
	if d.startingOver.commit() {
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
	d.startingOver.ask()
	d.mu.Unlock()
	d.host.Backlog.Wake()
}

// passInherited drops the inherited keys once the cursor is past them.
func (p *position) passInherited() {
	if p.cursor >= p.inheritedTo {
		clear(p.inherited)
	}
}

// settle notes that a key is acknowledged up to a seq.
func (p *position) settle(key string, seq uint64) { p.settled[key] = max(p.settled[key], seq) }

// passOver notes that entries of a key up to a seq are not told. They count as
// acknowledged with the last of some tasks, or at once if there is none.
func (p *position) passOver(key string, tasks []*task, seq uint64) {
	if len(tasks) == 0 {
		p.settle(key, seq)
		return
	}
	t := tasks[len(tasks)-1]
	t.last, t.more = max(t.last, seq), false
}

// acked is the seq up to which a key was acknowledged, if the file may not say so
// yet.
func (p *position) acked(key string) (seq uint64, ok bool) {
	settled, ok := p.settled[key]
	leaving, left := p.leaving[key]
	return max(settled, leaving), ok || left
}
