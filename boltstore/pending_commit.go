package boltstore

import (
	"errors"
	"fmt"
	"time"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// fillKeys is how many keys a commit adds at most to the set of a handler that was Reset.
const fillKeys = 4000

// pendingWrite is what one transaction does to the sets of a source's handlers.
type pendingWrite struct {
	s    *source
	t    sourceTx
	m    *sourceMeta
	now  int64
	sets map[string]*pendingSet // those that the transaction changes
}

// write writes, for each durable handler of the source, acknowledgements and the
// changes that the transaction has journaled after the seq before. m is the meta after these
// changes, which it updates. It returns a function to call once readers see the transaction.
func (hs *handlers) write(
	t sourceTx, m *sourceMeta, before uint64, changes []format.Draft,
) (visible func(), err error) {
	claimed := hs.all()
	if len(m.Handlers)+len(claimed) == 0 {
		return nil, nil
	}
	w := &pendingWrite{s: hs.s, t: t, m: m, now: hs.s.db.opts.Clock.Now().UnixNano(), sets: map[string]*pendingSet{}}
	if err := w.registered(claimed); err != nil {
		return nil, err
	}
	acks := map[*Handler]map[string]Receipt{}
	for _, h := range claimed {
		if h.doubted.Load() {
			err := w.with(h.name, func(set *pendingSet) error { return t.verifyPending(h.name, set.hm) })
			if err != nil {
				return nil, err
			}
		}
		if acks[h] = h.pendingAcks(); len(acks[h]) == 0 {
			continue
		}
		err := w.with(h.name, func(set *pendingSet) error { return set.acknowledge(acks[h], w.now) })
		if err != nil {
			return nil, err
		}
	}
	if err := w.take(before+1, changes); err != nil {
		return nil, err
	}
	for _, h := range claimed {
		if hm := w.meta(h.name); hm.Filling && m.listed() {
			if err := w.with(h.name, w.fill); err != nil {
				return nil, err
			}
		}
	}
	for name, set := range w.sets {
		if err := set.flush(); err != nil {
			return nil, err
		}
		m.Handlers[name] = set.hm
	}
	return func() {
		for _, h := range hs.all() { // also those that were registered meanwhile
			c := HandlerChange{}
			if set := w.sets[h.name]; set != nil {
				c.Keys = set.toldKeys()
			}
			if _, verified := acks[h]; verified {
				h.doubted.Store(false)
			}
			h.written(acks[h], m.Handlers[h.name].Reset, c)
		}
		if hs.owe() {
			hs.s.wake(true)
		}
	}, nil
}

// registered notes that the claimed handlers are in use, and removes those that have been in
// none for long.
func (w *pendingWrite) registered(claimed []*Handler) error {
	for _, h := range claimed {
		hm, known := w.m.Handlers[h.name]
		hm.seen(w.s.db.device, w.s.db.opts.handlerSeen())
		w.m.Handlers[h.name] = hm
		if !known {
			if err := w.restart(h.name, fmt.Errorf("%w: its pending keys are lost", ErrDamaged)); err != nil {
				return err
			}
		}
	}
	return w.s.handlers.forget(w.t, w.m)
}

// meta is a handler's meta as the transaction leaves it so far.
func (w *pendingWrite) meta(name string) handlerMeta {
	if set := w.sets[name]; set != nil {
		return set.hm
	}
	return w.m.Handlers[name]
}

// with calls fn with a handler's set. If the set is damaged, the handler begins with a Reset.
func (w *pendingWrite) with(name string, fn func(*pendingSet) error) error {
	set, err := w.sets[name], error(nil)
	if set == nil {
		set, err = w.t.pendingSet(name, w.m.Handlers[name])
		w.sets[name] = set
	}
	if err == nil {
		err = fn(set)
	}
	if errors.Is(err, ErrDamaged) {
		return w.restart(name, err)
	}
	return err
}

// restart makes a handler begin with a Reset.
func (w *pendingWrite) restart(name string, damage error) error {
	w.s.handlers.logRestart(name, damage)
	hm, err := w.t.restartHandler(name, w.meta(name))
	if err != nil {
		return err
	}
	w.sets[name], err = w.t.pendingSet(name, hm)
	return err
}

func (hs *handlers) logRestart(name string, damage error) {
	hs.s.db.log().Error(damage, "What a durable handler must be told is damaged; it is told a Reset, and every object",
		"source", hs.s.name.String(), "handler", name)
}

// take adds changes to the sets. The first one has that seq.
func (w *pendingWrite) take(first uint64, changes []format.Draft) error {
	if len(changes) == 0 {
		return nil
	}
	for name := range w.m.Handlers {
		if w.meta(name).Owed {
			continue // all keys become pending later
		}
		err := w.with(name, func(set *pendingSet) error {
			for i, d := range changes {
				if set.hm.Filling && !set.filled(d.Key) {
					continue
				}
				if err := set.change(first+uint64(i), d); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// filled says whether fill has passed the key.
func (set *pendingSet) filled(key string) bool {
	return set.hm.Fill != nil && Before(key, set.hm.Fill)
}

// fill adds some of the keys of all objects after a Reset. The caller waits for the first
// list.
func (w *pendingWrite) fill(set *pendingSet) error {
	var keys []string
	n := 0
	g := w.t.contents()
	if g.Items == nil {
		return nil // the next list brings the objects
	}
	next, err := layout.Page(g.Items.Cursor(), set.hm.Fill, func(_ []byte, r layout.Raw) bool {
		if n++; n > w.s.db.opts.fillKeys {
			return false
		}
		if key, err := keyOf(r); err == nil { // the list after damage shows a change
			keys = append(keys, key)
		}
		return true
	})
	if err != nil {
		return err
	}
	for _, key := range keys {
		pk, err := set.get(key)
		if err != nil {
			return err
		}
		if pk == nil {
			pk = &pendingKey{Key: key, Since: w.now}
			set.keys[key] = pk
		}
		pk.Seq, pk.Initial = max(pk.Seq, w.m.Seq), true
		set.told = append(set.told, key)
	}
	set.hm.Filled += uint64(len(keys))
	set.hm.Filling, set.hm.Fill = next != nil, next
	if !set.hm.Filling {
		set.hm.Filled = 0
	}
	return nil
}

// forget removes handlers that were not registered for HandlerAge. A program
// that has just started gets time to register its own.
func (hs *handlers) forget(t sourceTx, m *sourceMeta) error {
	age, now, right := hs.s.db.opts.HandlerAge, hs.s.db.opts.Clock.Now(), hs.s.db.device.right()
	for name, hm := range m.Handlers {
		if hm.Seen == 0 || right && !hm.SeenRight { // noted by a clock that may have been wrong
			hm.Seen, hm.SeenBy = hs.s.db.device.dateAnew(hm.Seen, hm.SeenBy)
			hm.SeenRight = right
			m.Handlers[name] = hm
		}
	}
	if age <= 0 || !right || now.Sub(hs.s.life.began) < min(age, time.Hour) {
		return nil
	}
	for name, hm := range m.Handlers {
		if hs.claimed(name) || now.Sub(time.Unix(0, hm.Seen))-hs.s.db.opts.handlerLate() < age {
			continue
		}
		hs.s.db.log().Info("A durable handler has not been registered for long, so its pending keys are removed; "+
			"if it returns, it is told a Reset",
			"source", hs.s.name.String(), "handler", name, "seen", time.Unix(0, hm.Seen))
		delete(m.Handlers, name)
		if err := t.dropPending(name); err != nil {
			return err
		}
	}
	return nil
}

func (hs *handlers) claimed(name string) bool {
	hs.s.mu.RLock()
	defer hs.s.mu.RUnlock()
	_, ok := hs.byName[name]
	return ok
}

// seen notes that the handler is registered, to the given exactness.
func (hm *handlerMeta) seen(d *device, to time.Duration) {
	wall, by := d.at(d.clock.Now().Truncate(to))
	if by != nil && wall == hm.Seen && hm.SeenBy != nil && hm.SeenBy.Boot == by.Boot && hm.SeenRight == by.Right {
		return // nothing to write
	}
	hm.Seen, hm.SeenBy, hm.SeenRight = wall, by, by != nil && by.Right
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
