package boltstore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/vmihailenco/msgpack/v5"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// handlerMeta is what a source's meta has of a durable handler.
type handlerMeta struct {
	// Reset identifies the handler's last Reset. Owed says that it has not been acknowledged:
	// then no key is pending.
	Reset uint64 `msgpack:"reset"`
	Owed  bool   `msgpack:"owed,omitempty"`
	// Filling: after a Reset the keys of all objects become pending, some with each commit.
	// Those before the item key Fill are; Filled counts them.
	Filling bool   `msgpack:"filling,omitempty"`
	Fill    []byte `msgpack:"fill,omitempty"`
	Filled  uint64 `msgpack:"filled,omitempty"`
	// Pending is the digest of the set. A set that is not the one last committed is damaged.
	Pending digest `msgpack:"pending"`

	Seen      int64  `msgpack:"seen"`                // unix ns, when it was last registered
	SeenRight bool   `msgpack:"seenRight,omitempty"` // the clock was known to be right
	SeenBy    *stamp `msgpack:"seenBy,omitempty"`
}

// length is how many keys are pending, with those that are still to be added.
func (hm handlerMeta) length(m *sourceMeta) uint64 {
	n := hm.Pending.Count
	if hm.Owed || hm.Filling {
		n += m.Items.Count - min(hm.Filled, m.Items.Count)
	}
	return n
}

// pendingKey is what a handler is still to be told of a key.
type pendingKey struct {
	//lint:ignore U1000 msgpack looks at it
	_msgpack struct{} `msgpack:",as_array"`

	Key     string
	Seq     uint64 // of the last change
	Since   int64  // unix ns, when the key became pending
	Initial bool   // not told since the last Reset
	Deleted []gone // oldest first
}

// gone is an object that was deleted, in its final or last known state.
type gone struct {
	//lint:ignore U1000 msgpack looks at it
	_msgpack struct{} `msgpack:",as_array"`

	Record []byte
	Final  bool
	Seq    uint64 // of the delete
	Time   int64  // of the delete, unix ns
}

// mostDeleted is how many deletes of one key are kept: the first one, of the object that the
// handler acknowledged, and the last ones, of objects that it may have been told since. A
// handler that was told one in the middle and did not acknowledge it is not told its delete.
// It is told that the key has no object, or another one.
const mostDeleted = 8

// change adds the key's next change.
func (p *pendingKey) change(seq uint64, d format.Draft) {
	if p.Key == "" {
		p.Key, p.Since = d.Key, d.Time
	}
	p.Seq = seq
	if d.Type != cache.Deleted {
		return
	}
	g := gone{Record: d.Next, Final: d.Next != nil, Seq: seq, Time: d.Time}
	if !g.Final {
		g.Record = d.Previous()
	}
	if p.Deleted = append(p.Deleted, g); len(p.Deleted) > mostDeleted {
		p.Deleted = slices.Delete(p.Deleted, 1, 2)
	}
}

// acknowledge takes out what a handler was told with a seq, at a time. It says whether
// nothing is left.
func (p *pendingKey) acknowledge(seq uint64, now int64) (done bool) {
	if p.Seq <= seq {
		return true
	}
	p.Deleted = slices.DeleteFunc(p.Deleted, func(g gone) bool { return g.Seq <= seq })
	p.Initial, p.Since = false, now
	return false
}

// pendingSet is a handler's set of pending keys within a transaction. Keys are read once, and
// written once by flush.
type pendingSet struct {
	t    sourceTx
	name string
	hm   handlerMeta
	box  *layout.Box            // nil: no key is pending
	was  map[string]uint64      // hashes as read, of keys that were pending
	keys map[string]*pendingKey // as changed; nil: the key is not pending
	told []string               // keys that have changed, in order
}

// pendingSet opens a handler's set. The error is ErrDamaged if it is not there.
func (t sourceTx) pendingSet(name string, hm handlerMeta) (*pendingSet, error) {
	p := &pendingSet{t: t, name: name, hm: hm, box: t.pending(name),
		was: map[string]uint64{}, keys: map[string]*pendingKey{}}
	if p.box == nil && hm.Pending.Count > 0 {
		return p, fmt.Errorf("%w: the set of %d pending keys is missing", ErrDamaged, hm.Pending.Count)
	}
	return p, nil
}

// get returns the pending key, nil if it is not pending. The error is ErrDamaged if it cannot
// be read.
func (p *pendingSet) get(key string) (*pendingKey, error) {
	if pk, read := p.keys[key]; read {
		return pk, nil
	}
	k := index.AppendKey(nil, key)
	raw := p.box.Get(k)
	if raw == nil {
		p.keys[key] = nil
		return nil, nil
	}
	pk, err := parsePending(key, raw)
	if err != nil {
		return nil, err
	}
	p.was[key], p.keys[key] = hashPending(k, raw), pk
	return pk, nil
}

// change adds a change of the key.
func (p *pendingSet) change(seq uint64, d format.Draft) error {
	pk, err := p.get(d.Key)
	if err != nil {
		return err
	}
	if pk == nil {
		pk = &pendingKey{}
		p.keys[d.Key] = pk
	}
	pk.change(seq, d)
	p.told = append(p.told, d.Key)
	return nil
}

// acknowledge takes the acknowledgements in.
func (p *pendingSet) acknowledge(acks map[string]Receipt, now int64) error {
	for key, r := range acks {
		switch {
		case r.reset != p.hm.Reset:
		case key == "":
			p.hm.Filling = p.hm.Filling || p.hm.Owed
			p.hm.Owed = false
		default:
			pk, err := p.get(key)
			if err != nil {
				return err
			}
			if pk != nil && pk.acknowledge(r.seq, now) {
				p.keys[key] = nil
			}
		}
	}
	return nil
}

// flush writes the keys that have changed.
func (p *pendingSet) flush() error {
	for _, key := range slices.Sorted(maps.Keys(p.keys)) {
		pk, k := p.keys[key], index.AppendKey(nil, key)
		was, there := p.was[key]
		if there {
			p.hm.Pending.remove(was)
		}
		if pk == nil {
			if there {
				if err := p.box.Delete(k); err != nil {
					return err
				}
			}
			continue
		}
		data, err := msgpack.Marshal(pk)
		if err != nil {
			return fmt.Errorf("boltstore: pending key %q: %w", key, err)
		}
		data = format.WithSum(data)
		p.hm.Pending.add(hashPending(k, data))
		if err := p.put(k, data); err != nil {
			return err
		}
	}
	return nil
}

func (p *pendingSet) put(k, data []byte) error {
	if p.box == nil {
		all, err := layout.Create(p.t.Root, layout.BucketPending)
		if err != nil {
			return err
		}
		b, err := layout.Create(all, []byte(p.name))
		if err != nil {
			return err
		}
		p.box = p.t.PendingBox(b, p.name)
	}
	return p.box.Put(k, data)
}

// toldKeys are the keys that have changed and are pending.
func (p *pendingSet) toldKeys() (all []PendingKey) {
	for _, key := range p.told {
		if pk := p.keys[key]; pk != nil {
			all = append(all, pk.pending())
		}
	}
	return all
}

func (p *pendingKey) pending() PendingKey { return PendingKey{p.Key, time.Unix(0, p.Since)} }

func hashPending(k, v []byte) uint64 { return format.HashBytes(slices.Concat(k, v)) }

// parsePending reads the pending key that is stored for key; "" means any.
func parsePending(key string, raw []byte) (*pendingKey, error) {
	pk := &pendingKey{}
	err := format.Decode(raw, pk)
	if err == nil && key != "" && pk.Key != key {
		err = fmt.Errorf("%w: %q is stored there", ErrDamaged, pk.Key)
	}
	if err != nil {
		return nil, fmt.Errorf("pending key %q: %w", key, err)
	}
	return pk, nil
}

// pending opens a handler's set, nil if there is none. A set that is no bucket is damage,
// which its digest shows.
func (t sourceTx) pending(name string) *layout.Box {
	if b := t.Root.Bucket(layout.BucketPending); b != nil && name != "" {
		return t.PendingBox(b.Bucket([]byte(name)), name)
	}
	return nil
}

// dropPending removes a handler's set, and what damage has left in its place.
func (t sourceTx) dropPending(name string) error {
	b := t.Root.Bucket(layout.BucketPending)
	switch {
	case t.Root.Get(layout.BucketPending) != nil:
		return t.Root.Delete(layout.BucketPending)
	case b == nil || name == "":
		return nil
	case b.Get([]byte(name)) != nil:
		return b.Delete([]byte(name))
	case b.Bucket([]byte(name)) == nil:
		return nil
	}
	return layout.Drop(b, []byte(name))
}

// restartHandler returns the meta of a handler that begins with a Reset.
func (t sourceTx) restartHandler(name string, was handlerMeta) (handlerMeta, error) {
	hm := handlerMeta{Reset: rand.Uint64(), Owed: true, Seen: was.Seen, SeenBy: was.SeenBy, SeenRight: was.SeenRight}
	return hm, t.dropPending(name)
}

// restartHandlers makes all handlers in m begin with a Reset.
func (t sourceTx) restartHandlers(m *sourceMeta) error {
	for name, was := range m.Handlers {
		hm, err := t.restartHandler(name, was)
		if err != nil {
			return err
		}
		m.Handlers[name] = hm
	}
	return nil
}

// verifyPending returns ErrDamaged if the set is not the one last committed. Old or swapped
// pages can hide keys, and each value that is left verifies.
func (t sourceTx) verifyPending(name string, hm handlerMeta) error {
	d, err := digestPending(t.pending(name), nil)
	if err == nil && d != hm.Pending {
		err = fmt.Errorf("%w: the %d pending keys are not the %d that were last committed",
			ErrDamaged, d.Count, hm.Pending.Count)
	}
	return err
}

// restartDamaged makes the handlers in m begin with a Reset whose sets are damaged.
func (t sourceTx) restartDamaged(m *sourceMeta) error {
	for name, hm := range m.Handlers {
		if t.verifyPending(name, hm) == nil {
			continue
		}
		var err error
		if m.Handlers[name], err = t.restartHandler(name, hm); err != nil {
			return err
		}
	}
	return nil
}

// digestPending computes the digest of a set. each is called for its keys, unless it is nil.
func digestPending(box *layout.Box, each func(pk *pendingKey, size int)) (d digest, err error) {
	failed := box.Each(func(_, raw []byte) {
		pk, perr := parsePending("", raw)
		if perr != nil {
			err = perr
			return
		}
		d.add(hashPending(index.AppendKey(nil, pk.Key), raw))
		if each != nil {
			each(pk, len(raw))
		}
	})
	if err == nil {
		err = failed
	}
	return d, err
}
