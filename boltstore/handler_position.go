package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/kubewake/kubewake/boltstore/internal/layout"

	"github.com/kubewake/kubewake/boltstore/internal/format"

	"github.com/vmihailenco/msgpack/v5"
	bolt "go.etcd.io/bbolt"
)

// Position is how far a durable handler has come.
//
// An entry up to Cursor is unacknowledged if Pending has its key with that seq
// or a lower one; so is every entry above Cursor. What has been parked is
// unacknowledged, whatever its seqs.
type Position struct {
	// Epoch of the objects that the handler knows, see Store.Epoch.
	Epoch uint64
	// Cursor is the seq up to which entries have been handed to the handler, or
	// need not be.
	Cursor uint64
	// Pending has the keys with unacknowledged entries up to Cursor, each with
	// the seq of its first one.
	Pending map[string]uint64
	// Replaying: the handler is being shown the objects in the file. It has been
	// shown those before Next, see Store.Page. nil is the start.
	Replaying bool
	Next      []byte
	// Shown are the keys of objects that it has been shown and has not
	// acknowledged.
	Shown []string
	// ShownAt is the seq as of which it was last shown objects, 0 if never. What
	// was there before may have been left out.
	ShownAt uint64
	// Reset: the handler has still to be told to start over.
	Reset bool

	// Reach is the seq up to which entries may be handed to the handler before
	// Persisted is called; at least Cursor. An object that comes and goes behind
	// it may be left out of what is parked. Only for what is reported.
	Reach uint64
	// Settled are the keys in which something was acknowledged since the last
	// commit, each with the seq up to which: what is parked of them up to there
	// goes. Only for what is reported.
	Settled map[string]uint64
	// Park are keys whose unacknowledged entries are to be parked; they are in
	// neither Pending nor Shown. Only for what is reported.
	Park []Parking
	// Anew: the handler has started over, as of Cursor, since Persisted was last
	// called with it; what was parked before is of no use. Only for what is
	// reported.
	Anew bool
}

// Parking is a key with all that is unacknowledged of it up to the cursor and
// not parked yet, in order.
type Parking struct {
	Key     string
	Entries []*Entry
}

// low is the seq up to which nothing is unacknowledged.
func (p *Position) low() uint64 {
	low := p.Cursor
	for _, seq := range p.Pending {
		low = min(low, seq-1)
	}
	return low
}

// Positioner is asked by the committer how far a handler has come. Its methods
// are called in commit order and must neither block nor call the Store.
type Positioner interface {
	// Position is called within a transaction, perhaps in several that fail.
	Position() Position
	// Persisted is called once what Position last returned is in the file. What
	// the handler needs of the entries up to mark is parked from then on.
	Persisted(mark uint64)
	// Lost is called instead where part of what the handler has still to be told
	// is damaged: it has to start over, and is asked again until Position says
	// so by Anew.
	Lost()
}

// handlerState is what the file says of a durable handler, after the seq up to
// which the journal is not needed for it: the mark.
type handlerState struct {
	mark  uint64
	reach uint64 // as reported for the transaction under way

	Epoch     uint64            `msgpack:"epoch"`
	Cursor    uint64            `msgpack:"cursor"`
	Pending   map[string]uint64 `msgpack:"pending"`
	Replaying bool              `msgpack:"replaying"`
	Next      []byte            `msgpack:"next"`
	Shown     []string          `msgpack:"shown"`
	ShownAt   uint64            `msgpack:"shownAt"`
	Reset     bool              `msgpack:"reset"`
	// Over tells the last time that the file had the handler start over from
	// others. What the handler says counts once it has started over since.
	Over uint64 `msgpack:"over"`

	Seen        int64   `msgpack:"seen"`                // unix ns, when it was last registered
	SeenRight   bool    `msgpack:"seenRight,omitempty"` // by a clock that was known to be right
	SeenBy      *moment `msgpack:"seenBy,omitempty"`
	Parked      uint64  `msgpack:"parked"`      // keys
	ParkedBytes uint64  `msgpack:"parkedBytes"` // their size
	Collapsed   uint64  `msgpack:"collapsed"`   // entries that went into another one's, ever
}

func (st *handlerState) position(next []byte) Position {
	return Position{Epoch: st.Epoch, Cursor: st.Cursor, Pending: maps.Clone(st.Pending), Replaying: st.Replaying,
		Next: next, Shown: st.Shown, ShownAt: st.ShownAt, Reset: st.Reset}
}

// needs says whether an entry is unacknowledged and not parked.
func (st *handlerState) needs(seq uint64, key string) bool {
	if seq <= st.mark {
		return false
	}
	first, pending := st.Pending[key]
	return seq > st.Cursor || pending && first <= seq
}

func (st *handlerState) startOver(m *sourceMeta) {
	*st = handlerState{mark: m.Seq, Epoch: m.Epoch, Cursor: m.Seq, Replaying: true, Reset: true, Over: rand.Uint64(), Seen: st.Seen, SeenBy: st.SeenBy, SeenRight: st.SeenRight, Collapsed: st.Collapsed}
}

// restart makes a handler start over because of damage to what it has to be told.
func (s *Store) restart(t sourceTx, m *sourceMeta, name string, st *handlerState, damage error) error {
	s.db.log().Error(damage, "Part of what a durable handler has to be told is damaged, it has to start over", "source", s.source.String(), "handler", name)
	st.startOver(m)
	return t.dropParked(name)
}

func parseHandlerState(b []byte) (*handlerState, error) {
	data, err := format.CheckSum(b)
	if err == nil && len(data) < 8 {
		err = fmt.Errorf("%w: %d bytes", ErrDamaged, len(b))
	}
	if err != nil {
		return nil, err
	}
	st := &handlerState{mark: binary.BigEndian.Uint64(data)}
	if err := msgpack.Unmarshal(data[8:], st); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrDamaged, err)
	}
	return st, nil
}

// handlers reads the states of all handlers. One that is damaged has to start
// over: what it was not told cannot be known.
func (t sourceTx) handlers(m *sourceMeta) (map[string]*handlerState, error) {
	all := map[string]*handlerState{}
	err := t.HandlerBox(t.Root.Bucket(layout.BucketHandlers)).Each(func(k, v []byte) {
		st, err := parseHandlerState(v)
		if err != nil {
			st = &handlerState{}
			st.startOver(m)
		}
		all[string(k)] = st
	})
	return all, err
}

func (t sourceTx) putHandler(name string, st *handlerState) error {
	root, err := t.Root.CreateBucketIfNotExists(layout.BucketHandlers)
	if err != nil {
		return err
	}
	b := t.HandlerBox(root)
	var buf bytes.Buffer
	buf.Write(layout.U64(st.mark))
	if err := msgpack.NewEncoder(&buf).Encode(st); err != nil {
		return fmt.Errorf("boltstore: encode the position of handler %q: %w", name, err)
	}
	data := format.WithSum(buf.Bytes())
	if bytes.Equal(b.Get([]byte(name)), data) {
		return nil
	}
	return b.Put([]byte(name), data)
}

func (t sourceTx) dropHandler(name string) error {
	if b := t.Root.Bucket(layout.BucketHandlers); b != nil {
		if err := b.Delete([]byte(name)); err != nil {
			return err
		}
	}
	return t.dropParked(name)
}

// dropUseless removes what is parked for a handler that starts over, and of
// which its state says nothing.
func (t sourceTx) dropUseless(name string, st *handlerState) error {
	if !st.Reset || st.Parked > 0 {
		return nil
	}
	return t.dropParked(name)
}

func (t sourceTx) dropParked(name string) error {
	b := t.Root.Bucket(layout.BucketParked)
	if b == nil || b.Bucket([]byte(name)) == nil {
		return nil
	}
	return b.DeleteBucket([]byte(name))
}

func (t sourceTx) createParked(name string) (*layout.Box, error) {
	all, err := t.Root.CreateBucketIfNotExists(layout.BucketParked)
	if err != nil {
		return nil, err
	}
	b, err := all.CreateBucketIfNotExists([]byte(name))
	return t.ParkedBox(b, name), err
}

func (t sourceTx) parked(name string) *layout.Box {
	b := t.Root.Bucket(layout.BucketParked)
	if b == nil {
		return nil
	}
	return t.ParkedBox(b.Bucket([]byte(name)), name)
}

// restartHandlers makes all handlers start over, also those of which only what
// is parked is left.
func (t sourceTx) restartHandlers(m *sourceMeta) error {
	all, err := t.handlers(m)
	if b := t.Root.Bucket(layout.BucketParked); b != nil && err == nil {
		err = b.ForEachBucket(func(name []byte) error {
			if all[string(name)] == nil {
				all[string(name)] = &handlerState{}
			}
			return nil
		})
	}
	for name, st := range all {
		if err == nil {
			st.startOver(m)
			err = errors.Join(t.dropParked(name), t.putHandler(name, st))
		}
	}
	return err
}

// forgetHandlers removes names that nobody has registered for HandlerAge. A
// program that has just been started gets the time to register.
func (s *Store) forgetHandlers(t sourceTx, all map[string]*handlerState, now time.Time) error {
	age := s.db.opts.HandlerAge
	right := s.db.device.right()
	for _, st := range all {
		if st.Seen == 0 || right && !st.SeenRight { // it was damaged, or seen by another clock
			st.Seen, st.SeenBy = s.db.device.at(now)
			st.SeenRight = right
		}
	}
	if age <= 0 || !right || now.Sub(s.claimed) < min(age, time.Hour) {
		return nil
	}
	for name, st := range all {
		if s.handlerClaimed(name) || now.Sub(time.Unix(0, st.Seen))-s.db.opts.handlerSeen() < age { // Seen is rounded down
			continue
		}
		s.db.log().Info("A durable handler has not been registered for long, its position is removed; it starts anew if it returns",
			"source", s.source.String(), "handler", name, "seen", time.Unix(0, st.Seen))
		delete(all, name)
		if err := t.dropHandler(name); err != nil {
			return err
		}
	}
	return nil
}

// seen notes that the handler is registered, as exactly as is said.
func (st *handlerState) seen(d *device, to time.Duration) {
	wall, by := d.at(d.clock.Now().Truncate(to))
	if by != nil && wall == st.Seen && st.SeenBy != nil && st.SeenBy.Boot == by.Boot && st.SeenRight == by.Right {
		return // nothing to write
	}
	st.Seen, st.SeenBy, st.SeenRight = wall, by, by != nil && by.Right
}

// moveAsideKeeping moves the source aside and makes a new one, in which its
// handlers are registered, to start over.
func (h *handle) moveAsideKeeping(tx *bolt.Tx, id string, m *sourceMeta, now time.Time) (sourceTx, error) {
	var all map[string]*handlerState
	if src, ok := h.source(tx, id); ok {
		var err error
		if all, err = src.handlers(m); err != nil {
			return sourceTx{}, err
		}
	}
	if err := h.moveAside(tx, id, now); err != nil {
		return sourceTx{}, err
	}
	name, err := layout.SourceName(h.seal, id)
	if err != nil {
		return sourceTx{}, err
	}
	b, err := tx.Bucket(layout.BucketSources).CreateBucket(name)
	if err != nil {
		return sourceTx{}, err
	}
	src := sourceIn(b, id, h.seal)
	for name, st := range all {
		st.startOver(m)
		if err := src.putHandler(name, st); err != nil {
			return src, err
		}
	}
	return src, nil
}
