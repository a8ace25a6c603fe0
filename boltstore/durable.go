package boltstore

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Handler is the registration of a durable handler.
type Handler struct {
	s    *Store
	name string
	p    Positioner

	changes  atomic.Uint64
	reported uint64 // changes that the transaction under way contains
	persist  atomic.Uint64
	parked   atomic.Uint64 // keys that the file has parked

	over uint64 // the file's last start-over that the Positioner knows of

	// Of the transaction under way:
	starting uint64 // over, once the transaction is visible
	stale    bool   // the Positioner is in an earlier epoch
}

// ClaimHandler registers a durable handler under a name, or takes up its position. known
// says that the file has the position of an earlier registration. It is also true if the
// file may have lost it; the handler then starts over. A new handler begins at the end of
// the journal, with a replay. start is called with the position before p is called. The
// error is ErrClaimed if the name is in use in this process.
func (s *Claimed) ClaimHandler(name string, p Positioner, start func(pos Position, mark uint64, known bool)) (*Handler, error) {
	fail := func(err error) (*Handler, error) {
		return nil, fmt.Errorf("boltstore: handler %q of %s: %w", name, s.source, err)
	}
	switch {
	case name == "" || len(name) > 512:
		return fail(errors.New("a name has 1 to 512 bytes"))
	}
	h := &Handler{s: s.Store, name: name, p: p}
	s.mu.Lock()
	if _, taken := s.handlers[name]; taken {
		s.mu.Unlock()
		return fail(fmt.Errorf("%w in this process; to register the name again, wait for its end with cache.ShutDownEventHandler", ErrClaimed))
	}
	s.handlers[name] = nil // taken; p is not called before start
	s.mu.Unlock()
	var st *handlerState
	var next []byte
	known := false
	claim := func(t sourceTx, m *sourceMeta) error {
		all, err := t.handlers(m)
		if err != nil {
			return err
		}
		if st, known = all[name]; !known {
			if err := s.db.h.handlersListed(s.id); err != nil {
				return err
			}
			st = &handlerState{mark: m.Seq, Epoch: m.Epoch, Cursor: m.Seq, Replaying: true}
			if known = m.NamesLost || anyStray(all); known {
				st.startOver(m)
			}
		} else if err := t.parkedAs(name, st); err != nil {
			if err := s.restart(t, m, name, st, err); err != nil {
				return err
			}
		}
		st.seen(s.db.device, 1)
		if err := t.dropUseless(name, st); err != nil {
			return err
		}
		if next, err = s.placeKept(st.Next); err != nil {
			return err
		}
		return t.putHandler(name, st)
	}
	err := s.db.writeHealed(func() error { return s.updateMeta(claim) })
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.handlers, name)
		return fail(err)
	}
	h.over = st.Over
	h.parked.Store(st.Parked)
	start(st.position(next), st.mark, known)
	s.handlers[name] = h
	return h, nil
}

// Changed says that the position has changed. The next commit of the source writes it,
// at most FlushInterval later.
func (h *Handler) Changed() { h.changes.Add(1) }

// ParkedKeys counts the handler's parked keys in the file, as of the last commit of its
// position.
func (h *Handler) ParkedKeys() uint64 { return h.parked.Load() }

// Release writes the position, if it has changed, and ends the registration. It does
// nothing once the handler has been removed.
func (h *Handler) Release() error {
	h.s.mu.RLock()
	claimed := h.s.handlers[h.name] == h
	h.s.mu.RUnlock()
	if !claimed {
		return nil
	}
	err := h.writeLast()
	if err != nil { // the file does not have all that the handler has acknowledged
		h.s.knownSeq.Store(h.s.metaNow().Seq)
	}
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.s.handlers[h.name] == h {
		delete(h.s.handlers, h.name)
	}
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrNoSource) {
		return nil // the next life is told the rest again
	}
	return err
}

// writeLast writes the position, unless the file has it. Handlers that end together take
// turns: the first one writes the positions of all.
func (h *Handler) writeLast() error {
	h.s.lastPositions.Lock()
	defer h.s.lastPositions.Unlock()
	if h.changes.Load() == h.persist.Load() && !h.s.claimDue() { // a machine that has slept has noted nothing meanwhile
		return nil
	}
	return h.s.writePositions()
}

// RemoveHandler removes the handler called name and everything kept for it. If it is
// registered, the registration ends and the name can be registered again. The error is
// ErrClaimed while the name is being registered.
func (s *Claimed) RemoveHandler(name string) error {
	s.mu.Lock()
	h, taken := s.handlers[name]
	if h != nil {
		delete(s.handlers, name)
	}
	s.mu.Unlock()
	if taken && h == nil {
		return fmt.Errorf("boltstore: handler %q of %s: %w: it is being registered; try again", name, s.source, ErrClaimed)
	}
	err := s.db.writeHealed(func() error {
		return s.updateMeta(func(t sourceTx, _ *sourceMeta) error { return t.dropHandler(name) })
	})
	if err != nil {
		s.knownSeq.Store(s.metaNow().Seq) // the file may not have all that the handler has acknowledged
		return fmt.Errorf("boltstore: handler %q of %s was not removed: %w", name, s.source, err)
	}
	return nil
}

func (h *Handler) persisted(st *handlerState) {
	h.over = h.starting
	h.parked.Store(st.Parked)
	if st.Over != h.over && !h.stale { // in the new epoch it starts over by itself
		h.p.Lost()
		return
	}
	h.persist.Store(h.reported)
	h.p.Persisted(st.mark)
}

func (s *Store) claimedHandlers() (all []*Handler) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, h := range s.handlers {
		if h != nil {
			all = append(all, h)
		}
	}
	return all
}

// handlersChanged makes the committer look at the handlers' states in the file soon.
func (s *Store) handlersChanged() {
	for _, h := range s.claimedHandlers() {
		h.Changed()
	}
}

func (s *Store) handlerClaimed(name string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, ok := s.handlers[name]
	return ok
}

// positionsChanged says whether a handler has something to write.
func (s *Store) positionsChanged() bool {
	for _, h := range s.claimedHandlers() {
		if h.changes.Load() != h.persist.Load() {
			return true
		}
	}
	return false
}

// writePositions writes, in a transaction of its own, the values that otherwise ride on
// commits (work.stamp): told mark, positions, the claim's time, and stampNotes. NoPlain and Stands are not among them:
// ExpectPlain writes NoPlain, and the change that sets Stands is about to be committed.
func (s *Store) writePositions() error {
	var visible func()
	return s.updateMetaThen(func(t sourceTx, m *sourceMeta) (err error) {
		m.claimedNow(s.db.device)
		m.Told = max(m.Told, min(s.told.Load(), m.Seq))
		s.stampNotes(m)
		visible, err = s.writeHandlers(t, m)
		return err
	}, func() {
		if visible != nil {
			visible()
		}
	})
}

// handlerSeen is how exactly the file says when a handler was last registered, and with a
// HandlerAge also how often it is noted. So an idle handler need not be written often.
func (o Options) handlerSeen() time.Duration {
	if o.HandlerAge <= 0 {
		return time.Minute
	}
	return min(max(o.HandlerAge/48, time.Minute/3), claimNoteEvery)
}

// handlerLate is how much later than noted a handler may have been registered. The note is
// rounded down. The next one waits for a commit, before which the program may be killed.
func (o Options) handlerLate() time.Duration { return 3 * o.handlerSeen() }

// HandlerState is the state of a durable handler in the file.
type HandlerState struct {
	Name string `json:"name"`
	// Seen is when the handler was last registered. If the clock may have been wrong then,
	// it may be a later time at which the clock was right. SeenAge is how long before the
	// state was taken the handler was last registered, nil if not known; see
	// Options.TrustClock.
	Seen    time.Time      `json:"seen"`
	SeenAge *time.Duration `json:"seenAgeNanoseconds,omitempty"`
	// Mark is the seq up to which the handler needs nothing of the journal.
	Mark uint64 `json:"mark"`
	// Entries and Bytes are the part of the journal that is kept for the handler; Bytes
	// counts whole blocks. Behind is the age of the oldest unacknowledged entry among
	// them.
	Entries uint64        `json:"entries"`
	Bytes   uint64        `json:"bytes"`
	Behind  time.Duration `json:"behindNanoseconds"`
	// BehindUnknown says that the clock that dated the entry, or the present one, may be
	// wrong. Behind is then 0.
	BehindUnknown bool `json:"behindUnknown,omitempty"`
	// Pending counts keys above the mark with unacknowledged entries. Either the handler
	// has been told later entries, or these are being retried.
	Pending int `json:"pending"`
	// Parked counts keys whose unacknowledged changes were collapsed to one each,
	// because the journal was too large or too old. ParkedBytes is their size.
	Parked      uint64 `json:"parked"`
	ParkedBytes uint64 `json:"parkedBytes"`
	// Collapsed counts entries that the handler is not told one by one.
	Collapsed uint64 `json:"collapsed"`
	// Replaying says that the handler has not been shown all objects yet.
	Replaying bool `json:"replaying"`
	// Reset says that the handler must still be told to start over.
	Reset bool `json:"reset,omitempty"`
}

// Handlers returns the states of the source's durable handlers in the file, by name.
// Acknowledgements since the last commit are not in them.
func (s *Store) Handlers() (all []HandlerState, err error) {
	err = s.view(func(m *sourceMeta, t sourceTx) (err error) {
		all, err = t.handlerStates(m, s.db.device)
		return err
	})
	if err != nil {
		err = fmt.Errorf("boltstore: handlers of %s: %w", s.source, err)
	}
	return all, err
}
