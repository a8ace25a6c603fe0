//go:build linux

package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// state is the server's state of a key.
type state struct {
	content
	live    bool
	version uint64 // of the last change, a delete included
}

// truth is the history of a source on the server, from a version on.
type truth struct {
	mu   sync.Mutex
	now  []state
	base []state // at upto
	upto uint64
	log  []state // changes behind upto
}

func newTruth(src, slots int) *truth {
	t := &truth{now: make([]state, slots)}
	for i := range t.now {
		t.now[i].src, t.now[i].slot = src, i
	}
	t.base = append(t.base, t.now...)
	return t
}

// from returns, by slot, the states that the objects had from one version to another. The first
// version must not go back from call to call.
func (t *truth) from(version, newest uint64) ([][]state, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if version < t.upto {
		return nil, fmt.Errorf("version %d comes after %d", version, t.upto)
	}
	n := 0
	for ; n < len(t.log) && t.log[n].version <= version; n++ {
		t.base[t.log[n].slot] = t.log[n]
	}
	t.log = append([]state(nil), t.log[n:]...)
	t.upto = version
	states := make([][]state, len(t.base))
	for slot, s := range t.base {
		states[slot] = []state{s}
	}
	for _, s := range t.log {
		if s.version <= newest {
			states[s.slot] = append(states[s.slot], s)
		}
	}
	return states, nil
}

// last returns the present objects, and the version of the newest change.
func (t *truth) last() (now []state, version uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.now {
		version = max(version, s.version)
	}
	return append(now, t.now...), version
}

// writer changes objects.
type writer struct {
	sim    *kubesim.Server
	sizes  sizes
	truth  [sources]*truth
	rnd    *rand.Rand
	goal   int         // changes a second
	ahead  func() bool // whether it must wait
	writes atomic.Int64
	waited atomic.Int64 // ns
}

func newWriter(sim *kubesim.Server, s sizes, seed uint64, goal int) *writer {
	w := &writer{sim: sim, sizes: s, rnd: rand.New(rand.NewPCG(seed, 2)), goal: goal}
	for src := range sources {
		w.truth[src] = newTruth(src, s[src])
	}
	return w
}

// fill creates most objects.
func (w *writer) fill() error {
	for src := range sources {
		for slot := range w.sizes[src] {
			if slot%20 == 19 {
				continue
			}
			if err := w.change(src, slot, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// tick is how often changes are made.
const tick = 5 * time.Millisecond

// run changes objects until ctx ends.
func (w *writer) run(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for due := 0.0; ; {
		began := time.Now()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if w.ahead() {
			w.waited.Add(int64(time.Since(began)))
			continue
		}
		for due += float64(w.goal) * tick.Seconds(); due >= 1; due-- {
			if err := w.step(); err != nil {
				return err
			}
		}
	}
}

// step makes one change. A quarter of them meet one key in a hundred.
func (w *writer) step() error {
	src := large
	if w.rnd.IntN(20) == 0 {
		src = small
	}
	slot := w.rnd.IntN(w.sizes[src])
	if w.rnd.IntN(4) == 0 {
		slot = slot / 100 * 100
	}
	live := w.truth[src].now[slot].live // there is no other writer
	switch dice := w.rnd.IntN(100); {
	case live && dice < 4:
		return w.change(src, slot, false)
	case live && dice < 7: // another object takes the key at once
		if err := w.change(src, slot, false); err != nil {
			return err
		}
	}
	return w.change(src, slot, true)
}

// change makes the next object of a key, or the next state of the one that is there, or
// deletes it.
func (w *writer) change(src, slot int, live bool) error {
	t := w.truth[src]
	t.mu.Lock() // who sees a version finds the change noted
	defer t.mu.Unlock()
	s := t.now[slot]
	was := s.live
	s.live = live
	var err error
	switch {
	case !live:
		if err = w.sim.Delete(w.sizes.object(s.content)); err == nil {
			s.version = w.sim.Revision() // there is one writer
		}
	default:
		write := w.sim.Update
		if s.turn++; !was {
			s.inc++
			write = w.sim.Create
		}
		o := w.sizes.object(s.content)
		if err = write(o); err == nil {
			_, _, s.version, err = identity(o)
		}
	}
	if err != nil {
		return fmt.Errorf("%s %d: %w", resources[src], slot, err)
	}
	t.now[slot] = s
	t.log = append(t.log, s)
	w.writes.Add(1)
	return nil
}
