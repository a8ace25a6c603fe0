package boltstore

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// A durable handler is a set of pending keys in the file (docs/design/handlers.md). The commit
// that changes an object puts its key into the set of each durable handler. An
// acknowledgement rides on a later commit. It removes the key, unless it has changed since.

// Handler is the registration of a durable handler. Its methods may be called from any
// goroutine.
type Handler struct {
	s       *source
	name    string
	changed func(HandlerChange)

	// waiting says that there is something to write. It spares a lock in each commit.
	waiting atomic.Bool
	// doubted says that a read has met damage in the set. The next commit verifies the set.
	doubted atomic.Bool

	mu       sync.Mutex
	reset    uint64             // the Reset that changed was last called for
	acks     map[string]Receipt // of keys, not written yet; "" is the Reset's
	released bool
}

// handlers are the durable handlers of a source.
type handlers struct {
	s        *source
	byName   map[string]*Handler // nil while one is being registered; under s.mu
	lastAcks sync.Mutex          // see Handler.writeLast
	told     atomic.Uint64       // up to where plain handlers have been told
	noPlain  atomic.Bool         // see ExpectPlain; meta follows
}

// HandlerChange is what a commit has changed for a handler.
type HandlerChange struct {
	// Reset says that the handler must be told a Reset before anything else. What it has in
	// hand is void.
	Reset bool
	// Readable: a list has ended. Keys that gave ErrNotYet are worth another Read.
	Readable bool
	// Keys have become pending, or have changed while they were.
	Keys []PendingKey
}

// PendingKey is a key that a handler has not acknowledged, and since when.
type PendingKey struct {
	Key   string
	Since time.Time
}

// Receipt says which call of a handler is acknowledged.
type Receipt struct{ seq, reset uint64 }

// Claim registers a durable handler under a name. A name that the file does not know
// begins with a Reset.
//
// changed is called in commit order, once readers see a commit that has changed something
// for the handler, and after a list. It must neither block nor call the Store. It may be
// called before Claim returns, and is not called for what was pending before. The error
// is ErrClaimed if the name is in use in this process.
func (s Delivery) Claim(name string, changed func(HandlerChange)) (*Handler, error) {
	fail := func(err error) (*Handler, error) {
		return nil, fmt.Errorf("boltstore: handler %q of %s: %w", name, s.name, err)
	}
	if name == "" || len(name) > 512 {
		return fail(errors.New("a name has 1 to 512 bytes"))
	}
	h := &Handler{s: s.source, name: name, changed: changed, acks: map[string]Receipt{}}
	s.mu.Lock()
	if _, taken := s.handlers.byName[name]; taken {
		s.mu.Unlock()
		return fail(fmt.Errorf(
			"%w in this process; to register the name again, wait for its end with cache.ShutDownEventHandler",
			ErrClaimed))
	}
	s.handlers.byName[name] = nil // taken; changed is not called before the file has the name
	s.mu.Unlock()
	claim := func(t sourceTx, m *sourceMeta) error {
		hm, known := m.Handlers[name]
		if known {
			if err := t.verifyPending(name, hm); err != nil {
				s.handlers.logRestart(name, err)
				known = false
			}
		}
		if !known {
			var err error
			if hm, err = t.restartHandler(name, hm); err != nil {
				return err
			}
		}
		hm.seen(s.db.device, 1)
		m.Handlers[name] = hm
		h.reset = hm.Reset
		return nil
	}
	err := s.updateMeta(claim)
	s.mu.Lock()
	if err == nil {
		s.handlers.byName[name] = h
	} else {
		delete(s.handlers.byName, name)
	}
	s.mu.Unlock()
	if err != nil {
		return fail(err)
	}
	if s.handlers.owe() { // an earlier life has ended before
		s.wake(true)
	}
	return h, nil
}

// ResetOwed says whether the handler must be told a Reset before anything else. receipt
// acknowledges it.
func (h *Handler) ResetOwed() (receipt Receipt, owed bool) {
	hm := h.s.metaNow().Handlers[h.name]
	h.mu.Lock()
	defer h.mu.Unlock()
	receipt = Receipt{reset: hm.Reset}
	return receipt, hm.Owed && h.acks[""] != receipt
}

// Acknowledge says that the call with that receipt has been handled. It may come late, and
// more than once. An empty key acknowledges the Reset. The next commit of the source writes
// it, at most FlushInterval later.
func (h *Handler) Acknowledge(key string, r Receipt) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.s.metaNow().Handlers[h.name].Reset
	known, there := h.acks[key]
	later := there && known.reset == r.reset && known.seq >= r.seq
	if h.released || later || r.reset != now {
		return
	}
	h.acks[key] = r
	h.waiting.Store(true)
	if len(h.acks) >= mostAcks {
		h.s.wake(false)
	}
	if key == "" {
		h.s.wake(true) // all keys become pending
	}
}

// Behind says that keys are still to be added to the pending ones: a Reset is owed, or objects
// are being added after one. It does not read the file.
func (h *Handler) Behind() bool {
	m := h.s.metaNow()
	hm := m.Handlers[h.name]
	return hm.Owed || hm.Filling
}

// Length is how many keys are pending as of the last commit, with those that are still to be
// added after a Reset. It does not read the file.
func (h *Handler) Length() uint64 {
	m := h.s.metaNow()
	return m.Handlers[h.name].length(m)
}

// Release writes the acknowledgements and ends the registration. The set of pending keys
// stays. Release does nothing once the handler has been removed.
func (h *Handler) Release() error {
	if !h.claimed() {
		return nil
	}
	err := h.writeLast()
	h.end()
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	if h.s.handlers.byName[h.name] == h {
		delete(h.s.handlers.byName, h.name)
	}
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrNoSource) {
		return nil // the next life is told the rest again
	}
	return err
}

func (h *Handler) claimed() bool {
	h.s.mu.RLock()
	defer h.s.mu.RUnlock()
	return h.s.handlers.byName[h.name] == h
}

// end makes later acknowledgements have no effect.
func (h *Handler) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.released = true
}

// writeLast writes the acknowledgements, unless the file has them. Handlers that end together
// take turns: the first one writes those of all.
func (h *Handler) writeLast() error {
	h.s.handlers.lastAcks.Lock()
	defer h.s.handlers.lastAcks.Unlock()
	if !h.waiting.Load() && !h.s.claimDue() { // a machine that has slept has noted nothing meanwhile
		return nil
	}
	return h.s.writeMarks()
}

// Remove removes the handler called name and its pending keys. If it is registered, the
// registration ends and the name can be registered again. The error is ErrClaimed while the
// name is being registered.
func (s Delivery) Remove(name string) error {
	s.mu.Lock()
	h, taken := s.handlers.byName[name]
	if h != nil {
		delete(s.handlers.byName, name)
	}
	s.mu.Unlock()
	if taken && h == nil {
		return fmt.Errorf("boltstore: handler %q of %s: %w: it is being registered; try again", name, s.name,
			ErrClaimed)
	}
	if h != nil {
		h.end()
	}
	err := s.updateMeta(func(t sourceTx, m *sourceMeta) error {
		delete(m.Handlers, name)
		return t.dropPending(name)
	})
	if err != nil {
		return fmt.Errorf("boltstore: handler %q of %s was not removed: %w", name, s.name, err)
	}
	return nil
}

// mostAcks is how many acknowledgements wait for FlushInterval. More of them have a commit of
// their own, so that memory stays bounded.
const mostAcks = 4096

func (h *Handler) full() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.acks) >= mostAcks
}

// pendingAcks returns the acknowledgements that are not written yet.
func (h *Handler) pendingAcks() map[string]Receipt {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.acks)
}

// written notes that a commit has written acknowledgements, and tells the handler what
// it has changed.
func (h *Handler) written(acks map[string]Receipt, reset uint64, c HandlerChange) {
	h.mu.Lock()
	for key, r := range acks {
		if h.acks[key] == r {
			delete(h.acks, key)
		}
	}
	if len(h.acks) == 0 {
		h.acks = map[string]Receipt{} // a map does not shrink
	}
	h.waiting.Store(len(h.acks) > 0 || h.doubted.Load())
	c.Reset = h.reset != reset
	h.reset = reset
	h.mu.Unlock()
	h.changed(c)
}

// doubt notes that a read of the set has met damage. It returns the error.
func (h *Handler) doubt(err error) error {
	if errors.Is(err, ErrDamaged) {
		h.doubted.Store(true)
		h.waiting.Store(true)
	}
	return err
}

func (hs *handlers) all() (all []*Handler) {
	hs.s.mu.RLock()
	defer hs.s.mu.RUnlock()
	for _, h := range hs.byName {
		if h != nil {
			all = append(all, h)
		}
	}
	return all
}

// stir tells the handlers, within the transaction's visible function, that the source
// was listed or emptied.
func (hs *handlers) stir() {
	m := hs.s.metaNow()
	for _, h := range hs.all() {
		h.written(nil, m.Handlers[h.name].Reset, HandlerChange{Readable: true})
	}
	if hs.owe() {
		hs.s.wake(true)
	}
}

// waiting says whether a handler has something to write.
func (hs *handlers) waiting() bool {
	for _, h := range hs.all() {
		if h.waiting.Load() {
			return true
		}
	}
	return false
}

// owe says whether a commit without changes would bring the handlers further.
func (hs *handlers) owe() bool {
	m := hs.s.metaNow()
	if len(m.Handlers) == 0 {
		return false
	}
	for _, h := range hs.all() {
		hm := m.Handlers[h.name]
		if h.full() {
			return true
		}
		if _, owed := h.ResetOwed(); hm.Owed && !owed || hm.Filling && m.listed() {
			return true
		}
	}
	return false
}

// writeMarks writes, in a transaction of its own, the values that otherwise ride on
// commits (work.stamp): told mark, acknowledgements, the claim's time, and stampNotes.
// NoPlain is not among them: ExpectPlain writes it.
func (s *source) writeMarks() error {
	var visible func()
	return s.updateMetaThen(func(t sourceTx, m *sourceMeta) (err error) {
		m.claimedNow(s.db.device)
		m.Told = max(m.Told, min(s.handlers.told.Load(), m.Seq))
		s.stampNotes(m)
		visible, err = s.handlers.write(t, m, m.Seq, nil)
		return err
	}, func() {
		if visible != nil {
			visible()
		}
	})
}
