package informer

import (
	"sync"
	"time"

	"github.com/kubewake/kubewake/boltstore"
)

// hand is what memory has of a handler's pending keys. The handler's mutex guards it.
type hand struct {
	idle     sync.Cond          // calling has become 0
	keys     map[string]*inHand // "" while a Reset is owed: then nothing else is told
	calling  int                // calls under way
	calls    uint64             // calls so far
	failures uint64             // of calls, so far
	failing  int                // keys in hand that have failed
	walked   int                // keys in the queue that the walk has added
	walkDue  bool               // keys may be pending that are not in hand
	unread   bool               // keys could not be read, and wait for a list
	lists    int                // how often such keys have become worth another read
	counted  bool               // untold has all keys that HasSynced waits for
	untold   int
	recent   recentObjects
	logged   logLimit
}

func newHand() hand { return hand{keys: map[string]*inHand{}, recent: newRecentObjects()} }

// inHand is what memory has of a pending key that is in the queue, being told, or told and
// not acknowledged.
type inHand struct {
	since    time.Time
	changed  bool              // since its last call
	refused  bool              // by its last call
	call     uint64            // number of its last call, 0 once that is acknowledged
	receipt  boltstore.Receipt // of its last call; none from its begin until it has read
	open     uint64            // in that time: number of the call before, if that is unanswered
	attempts int               // calls since it was last acknowledged
	failures int               // of these
	walked   bool              // the walk has added it, and it has not been told
	untold   bool              // HasSynced waits for it
}

// due makes a key due that has become pending, or has changed.
func (h *hand) due(k boltstore.PendingKey) *inHand {
	st := h.keys[k.Key]
	if st == nil {
		st = &inHand{since: k.Since}
		h.keys[k.Key] = st
	}
	st.changed = true
	if !h.counted && !st.untold {
		st.untold = true
		h.untold++
	}
	return st
}

// begin notes that a call begins. It returns nil if the key is not due.
func (h *hand) begin(key string) *durableCall {
	st := h.keys[key]
	if st == nil || !st.changed && !st.refused {
		return nil
	}
	h.unwalk(st)
	h.calls++
	h.calling++
	c := &durableCall{key: key, number: h.calls, attempt: st.attempts + 1}
	if !st.refused {
		st.open = st.call
	}
	c.before, st.receipt = st.receipt, boltstore.Receipt{}
	st.changed, st.refused = false, false
	st.call, st.attempts = c.number, c.attempt
	return c
}

// end notes that a call has ended. It says whether HasSynced no longer waits for any key.
func (h *hand) end(c *durableCall) (told bool) {
	if h.calling--; h.calling == 0 {
		h.idle.Broadcast()
	}
	st := h.keys[c.key]
	if st == nil || !st.untold || st.changed {
		return h.untold == 0
	}
	st.untold = false
	h.untold--
	return h.untold == 0
}

// read notes with what receipt a call tells its key. It says whether there is nothing to
// tell: the call before, which is still to be acknowledged, was told the same.
func (h *hand) read(c *durableCall) (known bool) {
	st := h.keys[c.key]
	if st == nil || st.call != c.number {
		return false // void since
	}
	open := st.open
	st.receipt, st.open = c.receipt, 0
	if open == 0 || c.before != c.receipt {
		return false
	}
	st.call, st.attempts = open, c.attempt-1
	return true
}

// forget forgets a key. It says whether the key has failed.
func (h *hand) forget(key string) (failed bool) {
	st := h.keys[key]
	if st == nil {
		return false
	}
	delete(h.keys, key)
	h.unwalk(st)
	if st.untold {
		h.untold--
	}
	if st.failures > 0 {
		h.failing--
	}
	return st.failures > 0
}

func (h *hand) unwalk(st *inHand) {
	if st.walked {
		st.walked = false
		h.walked--
	}
}
