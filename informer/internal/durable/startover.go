package durable

import (
	"k8s.io/apimachinery/pkg/util/sets"
)

// phase says where a handler is in starting over; docs/design/handlers.md has the
// table.
type phase int

const (
	phaseTelling phase = iota // entries, parked keys and replay are told
	phaseAsked                // the file has a start-over that memory does not have
	phaseDue                  // memory has one that the file does not have
	phaseWriting              // the commit under way has it
	phaseWritten              // the file has it, the handler has not been told
	phaseTold                 // the handler is told, and has not acknowledged
)

func (p phase) String() string {
	return [...]string{"telling", "asked", "due", "writing", "written", "told"}[p]
}

// startOver is the handler's state in starting over. Each method except owed is one
// transition. In a phase without that transition it does nothing.
type startOver struct {
	phase phase
	count int // start-overs in this life: entries read before one are dropped
}

// load begins a life. owed says that the file has a Reset to be told.
func (s *startOver) load(owed bool) {
	if owed {
		s.phase = phaseWritten
	}
}

// ask notes that the file asks for a start-over. One that is due answers that.
func (s *startOver) ask() {
	if s.phase != phaseDue {
		s.phase = phaseAsked
	}
}

// begin makes a start-over due.
func (s *startOver) begin() {
	s.phase = phaseDue
	s.count++
}

// report says whether a commit that asks for the position has to write the
// start-over.
func (s *startOver) report() bool {
	if s.phase == phaseDue {
		s.phase = phaseWriting
	}
	return s.phase == phaseWriting
}

// commit notes that the commit has succeeded. It says whether that wrote the
// start-over.
func (s *startOver) commit() bool {
	if s.phase != phaseWriting {
		return false
	}
	s.phase = phaseWritten
	return true
}

// tell says whether the Reset must be told now. It is in the file first: after a crash
// the file must know what the handler may have done about it.
func (s *startOver) tell() bool {
	if s.phase != phaseWritten {
		return false
	}
	s.phase = phaseTold
	return true
}

// acknowledge ends the start-over. A replay of all objects follows.
func (s *startOver) acknowledge() {
	if s.phase == phaseTold {
		s.phase = phaseTelling
	}
}

// owed says that the Reset must still be told or acknowledged. Until then nothing else is
// told.
func (s *startOver) owed() bool { return s.phase >= phaseDue }

// startOver drops the tasks in hand and makes a start-over due, as of a seq of an epoch.
// The caller holds the mutex.
func (d *Handler) startOver(epoch, seq uint64) {
	d.queues.reset()
	d.queues.known, d.parking.tasks = 0, nil
	d.pos.inherited, d.pos.inheritedTo, d.pos.settled = map[string]uint64{}, 0, map[string]uint64{}
	d.replay.shown, d.replay.shownAt = sets.New[string](), 0
	d.pos.epoch, d.pos.cursor, d.pos.mark = epoch, seq, seq
	d.pos.reach = 0
	d.parked.walk, d.replay.walk = walk{}, walk{active: true}
	d.startingOver.begin()
	d.claim.Changed()
	d.host.Store.Flush()
}

// damaged starts over because some changes that must be told cannot be read.
func (d *Handler) damaged(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.damagedLocked(err)
}

// damagedLocked is damaged for a caller that holds the mutex.
func (d *Handler) damagedLocked(err error) {
	d.log.Error(err, "Changes that a durable handler must be told are damaged, it starts over", "source", d.host.Store.Source().String(), "handler", d.name)
	d.startOver(d.pos.epoch, d.host.Store.State().Seq)
}
