package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// Pending is what a handler is to be told of a key.
type Pending struct {
	Key     string
	Seq     uint64    // of the last change that it contains
	Since   time.Time // when the key became pending
	Initial bool      // for the first time since a Reset
	Deleted []Gone    // deletes that the handler has not acknowledged, oldest first; at most eight
	Object  any       // the present object, nil if there is none; it is shared and must not be modified
	Receipt Receipt
}

// Gone is a deleted object. Object is its final state, or a cache.DeletedFinalStateUnknown
// with the last known one. That state is nil if it cannot be read. It is shared and must not
// be modified.
type Gone struct {
	Object any
	Seq    uint64 // of the delete
}

// ErrNotYet says that a key can be read only after a list: the source has had none, another Go
// type or transform stored its objects, or one is damaged.
var ErrNotYet = errors.New("the source's objects cannot be read before it is listed")

// Read returns what the handler is to be told of a key. ok is false if the key is not
// pending. p contains each commit that readers saw when Read was called.
func (h *Handler) Read(key string) (p Pending, ok bool, err error) {
	h.mu.Lock()
	ack, acked := h.acks[key] // before the transaction: a later commit writes it and takes it out
	h.mu.Unlock()
	var pk *pendingKey
	var now *Entry
	err = h.s.reader.read(func(m *sourceMeta, t sourceTx, g contentsTx) error {
		pk, now = nil, nil
		hm := m.Handlers[h.name]
		raw := t.pending(h.name).Get(index.AppendKey(nil, key))
		if raw == nil || hm.Owed {
			return nil
		}
		var err error
		if pk, err = parsePending(key, raw); err != nil {
			return h.doubt(err)
		}
		if acked && ack.reset == hm.Reset && pk.acknowledge(ack.seq, pk.Since) {
			pk = nil
			return nil
		}
		if g.Items == nil || !m.listed() {
			return ErrNotYet
		}
		p.Receipt = Receipt{seq: pk.Seq, reset: hm.Reset}
		if now, err = entryShown(h.s, g, key, m.Seq); err != nil {
			return fmt.Errorf("%w: %w", ErrNotYet, err)
		}
		return nil
	})
	if err != nil {
		return Pending{}, false, fmt.Errorf("boltstore: handler %q of %s: %w", h.name, h.s.name,
			h.s.health.explained(err))
	}
	if pk == nil {
		return Pending{}, false, nil
	}
	p.Key, p.Seq, p.Since, p.Initial = key, pk.Seq, time.Unix(0, pk.Since), pk.Initial
	for _, g := range pk.Deleted {
		p.Deleted = append(p.Deleted, g.told(h.s, key))
	}
	if now != nil {
		if p.Object, err = now.Object(); err != nil {
			return Pending{}, false, fmt.Errorf("boltstore: handler %q of %s: %w: %w", h.name, h.s.name, ErrNotYet, err)
		}
	}
	return p, true, nil
}

// entryShown is the object that the server showed last, as an entry; nil if there is none.
func entryShown(s *source, g contentsTx, key string, seq uint64) (*Entry, error) {
	k := index.AppendKey(nil, key)
	v := g.Items.Get(k)
	if v == nil {
		return nil, nil
	}
	_, r, err := s.coder.owner.ParseRecord(k, v)
	if err != nil {
		return nil, err
	}
	return &Entry{Seq: seq, Type: cache.Added, Key: key, Time: time.Unix(0, r.Stored), Born: r.Born,
		s: s, present: true, next: bytes.Clone(v)}, nil
}

// told decodes the deleted object. One that cannot be read is told by its key.
func (g gone) told(s *source, key string) Gone {
	d := format.Draft{Type: cache.Deleted, Time: g.Time, Key: key}
	if g.Final {
		d.Next = g.Record
	}
	if g.Record != nil {
		d.Prev = format.DiffOf(d.Next, g.Record)
	}
	obj, err := newEntry(s, g.Seq, d).Object()
	if err != nil {
		s.db.log().Error(err, "A deleted object cannot be told in full", "source", s.name.String(), "key", key)
	}
	return Gone{obj, g.Seq}
}

// Keys reads pending keys from the given place on, at most n; nil is the start. next is where
// the next page begins, nil after the last one.
func (h *Handler) Keys(from []byte, n int) (keys []PendingKey, next []byte, err error) {
	err = h.s.view(func(m *sourceMeta, t sourceTx) (err error) {
		keys, next = nil, nil
		box := t.pending(h.name)
		if box == nil {
			return nil
		}
		var bad error
		next, err = box.Page(from, func(raw []byte) bool {
			if len(keys) >= n || bad != nil {
				return false
			}
			var pk *pendingKey
			if pk, bad = parsePending("", raw); bad == nil {
				keys = append(keys, pk.pending())
			}
			return true
		})
		return h.doubt(errors.Join(err, bad))
	})
	if err != nil {
		err = fmt.Errorf("boltstore: handler %q of %s: %w", h.name, h.s.name, err)
	}
	return keys, next, err
}

// HandlerState is the state of a durable handler in the file.
type HandlerState struct {
	Name string `json:"name"`
	// Seen is when the handler was last registered. If the clock may have been wrong then,
	// it may be a later time at which the clock was right. SeenAge is how long before the
	// state was taken the handler was last registered, nil if not known; see
	// Options.TrustClock.
	Seen    time.Time      `json:"seen"`
	SeenAge *time.Duration `json:"seenAgeNanoseconds,omitempty"`
	// Pending counts the keys that the handler has not acknowledged, with those that are
	// still to become pending after a Reset.
	Pending uint64 `json:"pending"`
	// Age is how long the oldest of them has been pending. AgeUnknown says that the clock
	// that dated it, or the present one, may be wrong. Age is then 0.
	Age        time.Duration `json:"ageNanoseconds"`
	AgeUnknown bool          `json:"ageUnknown,omitempty"`
	// Deleted counts the deletes kept with the keys, Bytes is the size of the whole.
	Deleted uint64 `json:"deleted"`
	Bytes   uint64 `json:"bytes"`
	// Behind says that keys of all objects are still to be added to the pending ones, after a
	// Reset.
	Behind bool `json:"behind,omitempty"`
	// Reset says that the handler must be told a Reset before anything else.
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
		err = fmt.Errorf("boltstore: handlers of %s: %w", s.name, err)
	}
	return all, err
}

// handlerStates returns the states of all handlers.
func (t sourceTx) handlerStates(m *sourceMeta, d *device) (all []HandlerState, err error) {
	for _, name := range slices.Sorted(maps.Keys(m.Handlers)) {
		hm := m.Handlers[name]
		st := HandlerState{Name: name, Seen: time.Unix(0, hm.Seen), Pending: hm.length(m),
			Behind: hm.Owed || hm.Filling, Reset: hm.Owed}
		if age, ok := d.age(hm.Seen, hm.SeenBy); ok {
			st.SeenAge = &age
		}
		var oldest *pendingKey
		_, derr := digestPending(t.pending(name), func(pk *pendingKey, size int) {
			st.Deleted += uint64(len(pk.Deleted))
			st.Bytes += uint64(size)
			if oldest == nil || pk.Since < oldest.Since {
				oldest = pk
			}
		})
		if oldest != nil {
			st.Age = d.clock.Now().Sub(time.Unix(0, oldest.Since))
			if st.AgeUnknown = st.Age < 0 || !m.datedBy(d, oldest.Seq); st.AgeUnknown {
				st.Age = 0
			}
		}
		err = errors.Join(err, derr)
		all = append(all, st)
	}
	return all, err
}

// handlers verifies the pending keys of durable handlers.
func (v *verifier) handlers(src sourceTx) {
	for name, hm := range v.m.Handlers {
		if err := src.verifyPending(name, hm); err != nil {
			v.problem("handler %q: %v", name, err)
		}
		_, _ = digestPending(src.pending(name), func(pk *pendingKey, _ int) {
			if pk.Seq > v.m.Seq {
				v.problem("handler %q: %q is pending as of %d, above the last entry %d", name, pk.Key, pk.Seq, v.m.Seq)
			}
		})
	}
	if b := src.Root.Bucket(layout.BucketPending); b != nil {
		_ = b.ForEach(func(name, _ []byte) error {
			if _, known := v.m.Handlers[string(name)]; !known {
				v.problem("keys are pending for handler %q, which does not exist", name)
			}
			return nil
		})
	}
}
