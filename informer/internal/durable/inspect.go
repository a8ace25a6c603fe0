package durable

import (
	"fmt"
	"strings"
)

// State is the state of a handler at one moment, for tests.
type State struct {
	Cursor, Mark uint64         // seqs up to which entries were taken in, and parked at most
	Replaying    bool           // objects have still to be shown
	Unparking    bool           // parked keys have still to be taken in
	StartingOver bool           // nothing is told but a Reset
	Tasks        map[string]int // unacknowledged tasks, by key
}

// Inspect returns the handler's state.
func (d *Handler) Inspect() State {
	d.mu.Lock()
	defer d.mu.Unlock()
	st := State{
		Cursor: d.pos.cursor, Mark: d.pos.mark, Replaying: d.replay.active || len(d.replay.shown) > 0, Unparking: d.parked.active,
		StartingOver: d.startingOver.phase != phaseTelling, Tasks: map[string]int{},
	}
	for key, q := range d.queues.ofKey {
		st.Tasks[key] = len(q.tasks)
	}
	return st
}

// String says, in several lines, what holds up the handler.
func (d *Handler) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var s strings.Builder
	fmt.Fprintf(&s, "%s: cursor %d, mark %d, inherited to %d, replay %+v, parked %+v, memory %+v, looking %v, due %d, loads %d, retries %d, keys %d, start-over %+v\n",
		d.name, d.pos.cursor, d.pos.mark, d.pos.inheritedTo, d.replay, d.parked, d.queues.memory, d.queues.looking, len(d.queues.due), len(d.queues.loads), len(d.queues.retries.all), len(d.queues.ofKey), d.startingOver)
	for _, q := range d.queues.ofKey {
		fmt.Fprintf(&s, "  %s: %d tasks, %d told, busy %v, again %v, waiting %v, loading %v\n", q.key, len(q.tasks), q.told, q.busy, q.again, q.waiting, q.loading)
	}
	return s.String()
}

// Turn numbers the times that a key was told from its first unacknowledged task on.
type Turn struct {
	q *keyQueue
	n int
}

// Inspected describes the task of a delivery, for tests.
type Inspected struct {
	Handler string
	Turn    Turn
	First   uint64 // seq of the first entry in it, 0 if it is not from the journal
	Parked  bool   // it is among the file's parked entries
	More    bool   // the next task is of the same entries
}

// Inspect describes the delivery's task.
func (dl *Delivery) Inspect() Inspected {
	dl.s.mu.Lock()
	defer dl.s.mu.Unlock()
	return Inspected{dl.s.name, Turn{dl.q, dl.turn}, dl.t.first, dl.t.parked, dl.t.more}
}

// Lag is how far a handler is behind.
type Lag struct {
	Mark    uint64 // seq up to which it needs nothing of the journal, as far as the file knows
	Keys    int    // in hand, not acknowledged
	Failing int    // those of them whose last event it has refused
	Parked  uint64 // keys in the file
}

// Lag returns how far the handler is behind.
func (d *Handler) Lag() Lag {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := Lag{Mark: d.pos.mark, Parked: d.claim.ParkedKeys()}
	for _, q := range d.queues.ofKey {
		if len(q.tasks) > 0 {
			l.Keys++
		}
		if q.failed > 0 {
			l.Failing++
		}
	}
	return l
}
