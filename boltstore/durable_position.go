package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// Position is the handler position: how far a durable handler has acknowledged.
//
// Every entry above Cursor is unacknowledged. An entry up to Cursor is unacknowledged
// if Pending has its key with that seq or a lower one. Parked entries are
// unacknowledged, whatever their seqs.
type Position struct {
	// Epoch is that of the objects that the handler knows; see Claimed.Epoch.
	Epoch uint64
	// Cursor is the seq up to which entries have been handed to the handler or need not
	// be.
	Cursor uint64
	// Pending has the keys with unacknowledged entries up to Cursor, each with
	// the seq of its first one.
	Pending map[string]uint64
	// Replaying says that the handler is being shown the objects in the file. It has been
	// shown those before Next (see Store.Page); nil is the start.
	Replaying bool
	Next      []byte
	// Shown are the keys of objects that the handler has been shown and has not
	// acknowledged.
	Shown []string
	// ShownAt is the seq as of which the handler was last shown objects, 0 if never.
	// Earlier states may have been left out.
	ShownAt uint64
	// Reset says that the handler must still be told to start over.
	Reset bool

	// Reach is the seq up to which entries may be handed to the handler before
	// Persisted is called; it is at least Cursor. An object that comes and goes after
	// Reach may be left out of a parked key. Only reports have it.
	Reach uint64
	// Settled has the keys with entries acknowledged since the last commit. Each has the
	// seq up to which its parked entries are removed. Only reports have it.
	Settled map[string]uint64
	// Park are keys whose unacknowledged entries must be parked. They are in neither
	// Pending nor Shown. Only reports have it.
	Park []Parking
	// StartedOver says that the handler has started over, as of Cursor, since Persisted
	// was last called. Keys parked earlier are useless. Only reports have it.
	StartedOver bool
}

// Parking is a key with its unacknowledged entries up to the cursor that are not parked
// yet, in order.
type Parking struct {
	Key     string
	Entries []*Entry
}

// low is the seq up to which everything is acknowledged.
func (p *Position) low() uint64 {
	low := p.Cursor
	for _, seq := range p.Pending {
		low = min(low, seq-1)
	}
	return low
}

// Positioner tells the committer how far a handler has come. Its methods are called in
// commit order. They must neither block nor call the Store.
type Positioner interface {
	// Position is called within a transaction, perhaps repeatedly if transactions fail.
	Position() Position
	// Persisted is called once the last result of Position is in the file. From then on
	// the entries up to mark that the handler needs are parked.
	Persisted(mark uint64)
	// Lost is called instead if something that the handler must still be told is damaged.
	// The handler must start over. Position is called until its result says so by
	// StartedOver.
	Lost()
}

// handlerState is the stored state of a durable handler. The mark precedes it: the seq
// up to which the handler does not need the journal.
type handlerState struct {
	mark  uint64
	reach uint64 // as reported for the transaction under way
	// stray says that the value cannot be read, or is not of this name. It may belong to
	// a handler whose own name is lost.
	stray bool
	// above says that the position was above the last entry. The file has lost entries, and
	// others will have their seqs.
	above bool

	// Name is "" if an earlier version wrote the state.
	Name      string            `msgpack:"name,omitempty"`
	Epoch     uint64            `msgpack:"epoch"`
	Cursor    uint64            `msgpack:"cursor"`
	Pending   map[string]uint64 `msgpack:"pending"`
	Replaying bool              `msgpack:"replaying"`
	Next      []byte            `msgpack:"next"`
	Shown     []string          `msgpack:"shown"`
	ShownAt   uint64            `msgpack:"shownAt"`
	Reset     bool              `msgpack:"reset"`
	// Over identifies the last time that the file made the handler start over. Reports
	// of the handler count once it has started over since.
	Over uint64 `msgpack:"over"`

	Seen        int64  `msgpack:"seen"`                // unix ns, when it was last registered
	SeenRight   bool   `msgpack:"seenRight,omitempty"` // the clock was known to be right
	SeenBy      *stamp `msgpack:"seenBy,omitempty"`
	Parked      uint64 `msgpack:"parked"`      // keys
	ParkedBytes uint64 `msgpack:"parkedBytes"` // their size
	Collapsed   uint64 `msgpack:"collapsed"`   // entries collapsed into others, ever
}

func (st *handlerState) position(next []byte) Position {
	return Position{Epoch: st.Epoch, Cursor: st.Cursor, Pending: maps.Clone(st.Pending), Replaying: st.Replaying,
		Next: next, Shown: st.Shown, ShownAt: st.ShownAt, Reset: st.Reset}
}

// needs says whether the handler needs an entry in the journal: it is unacknowledged
// and not parked.
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

// restart makes a handler start over, because something that it must be told is
// damaged.
func (s *Store) restart(t sourceTx, m *sourceMeta, name string, st *handlerState, damage error) error {
	s.db.log().Error(damage, "Changes that a durable handler must be told are damaged; it starts over", "source", s.source.String(), "handler", name)
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
	if err := format.Unmarshal(data[8:], st); err != nil {
		return nil, err
	}
	return st, nil
}

// isOf returns ErrDamaged if the state is not of the handler of that name.
func (st *handlerState) isOf(name string) error {
	if st.Name != "" && st.Name != name {
		return fmt.Errorf("%w: the position is that of handler %q", ErrDamaged, st.Name)
	}
	return nil
}

// handlers reads the states of all handlers. A handler with a damaged state, or one of a
// later commit than m, starts over, since nothing says what it was not told.
func (t sourceTx) handlers(m *sourceMeta) (map[string]*handlerState, error) {
	all := map[string]*handlerState{}
	err := t.HandlerBox(t.Root.Bucket(layout.BucketHandlers)).Each(func(k, v []byte) {
		st, err := parseHandlerState(v)
		if err == nil {
			err = st.isOf(string(k))
		}
		if err != nil {
			st = &handlerState{}
			st.startOver(m)
			st.stray = true
		}
		if st.mark > m.Seq || st.Cursor > m.Seq {
			st.startOver(m)
			st.above = true
		}
		all[string(k)] = st
	})
	return all, err
}

// anyAbove says whether one of the positions is above the last entry.
func (t sourceTx) anyAbove(m *sourceMeta) bool {
	all, _ := t.handlers(m)
	for _, st := range all {
		if st.above {
			return true
		}
	}
	return false
}

// restartAbove makes handlers with such positions start over, before further entries hide
// that.
func (t sourceTx) restartAbove(m *sourceMeta) error {
	all, err := t.handlers(m)
	for name, st := range all {
		if st.above {
			err = errors.Join(err, t.dropParked(name), t.putHandler(name, st))
		}
	}
	return err
}

// anyStray says whether one of the states may be of a handler that has lost its name.
func anyStray(all map[string]*handlerState) bool {
	for _, st := range all {
		if st.stray {
			return true
		}
	}
	return false
}

func (t sourceTx) putHandler(name string, st *handlerState) error {
	if name == "" {
		return nil // damage has left it; bbolt takes no such name
	}
	root, err := layout.Create(t.Root, layout.BucketHandlers)
	if err != nil {
		return err
	}
	b := t.HandlerBox(root)
	st.Name = name
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

// dropUseless removes the parked keys of a handler that starts over, if its state does
// not count them.
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
	return layout.Drop(b, []byte(name))
}

func (t sourceTx) createParked(name string) (*layout.Box, error) {
	all, err := layout.Create(t.Root, layout.BucketParked)
	if err != nil {
		return nil, err
	}
	b, err := layout.Create(all, []byte(name))
	return t.ParkedBox(b, name), err
}

func (t sourceTx) parked(name string) *layout.Box {
	b := t.Root.Bucket(layout.BucketParked)
	if b == nil {
		return nil
	}
	return t.ParkedBox(b.Bucket([]byte(name)), name)
}

// restartHandlers makes all handlers start over, even those of which only parked keys
// are left.
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

// forgetHandlers removes handlers that were not registered for HandlerAge. A program
// that has just started gets time to register its own.
func (s *Store) forgetHandlers(t sourceTx, m *sourceMeta, all map[string]*handlerState) error {
	age, now, right := s.db.opts.HandlerAge, s.db.opts.Clock.Now(), s.db.device.right()
	for _, st := range all {
		if st.Seen == 0 || right && !st.SeenRight { // the state was damaged, or noted by a clock that may have been wrong
			st.Seen, st.SeenBy = s.db.device.dateAnew(st.Seen, st.SeenBy)
			st.SeenRight = right
		}
	}
	if age <= 0 || !right || now.Sub(s.claimed) < min(age, time.Hour) {
		return nil
	}
	for name, st := range all {
		if s.handlerClaimed(name) || now.Sub(time.Unix(0, st.Seen))-s.db.opts.handlerLate() < age {
			continue
		}
		s.db.log().Info("A durable handler has not been registered for long, so its position is removed; if it returns, it starts over",
			"source", s.source.String(), "handler", name, "seen", time.Unix(0, st.Seen))
		delete(all, name)
		m.NamesLost = true
		if err := t.dropHandler(name); err != nil {
			return err
		}
	}
	return nil
}

// seen notes that the handler is registered, to the given exactness.
func (st *handlerState) seen(d *device, to time.Duration) {
	wall, by := d.at(d.clock.Now().Truncate(to))
	if by != nil && wall == st.Seen && st.SeenBy != nil && st.SeenBy.Boot == by.Boot && st.SeenRight == by.Right {
		return // nothing to write
	}
	st.Seen, st.SeenBy, st.SeenRight = wall, by, by != nil && by.Right
}

// moveAsideKeeping sets the source aside and makes a new one. The handlers are
// registered in the new one, to start over.
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
