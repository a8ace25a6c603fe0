package durable

import (
	"bytes"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// walk is a pass over objects or parked keys, page by page.
type walk struct {
	active bool
	begun  bool
	next   []byte // where the next page begins
}

// replay shows the handler every object in the file. It shows objects again that an
// earlier life was shown and has not acknowledged, or whose entries are outdated.
type replay struct {
	walk
	shown   sets.Set[string] // keys to be shown again
	shownAt uint64           // seq of the last page of objects
}

// passed says whether the walk has come past key.
func (w *walk) passed(s Store, key string) bool {
	return !w.active || w.begun && s.Before(key, w.next)
}

// due says whether an entry must be told instead of being left to the replay. Before the
// replay has reached a key, only its deletes are told. An earlier life may have told the
// object, or the program may have read it since the handler was added.
func (d *Handler) due(e *boltstore.Entry) bool {
	return d.replay.passed(d.host.Store, e.Key) && !d.replay.shown.Has(e.Key) || e.Type == cache.Deleted
}

// showAgain leaves a key to the replay if the object of an entry that is due was stored under
// another Go type or transform. The present object is told instead, once it can be read. It says whether it has. Beyond some keys all objects are shown again: a place in
// the file is shorter than these keys.
func (d *Handler) showAgain(e *boltstore.Entry) bool {
	if e.Type == cache.Deleted || !e.Outdated() {
		return false
	}
	if d.replay.shown.Insert(e.Key); d.replay.shown.Len() > d.o.MaxPending {
		d.replay.shown, d.replay.walk = sets.New[string](), walk{active: true}
	}
	return true
}

// fillReplay takes in the next page of objects, after every entry that the page's
// snapshot contains.
func (d *Handler) fillReplay() bool {
	count, from, again := d.startingOver.count, d.replay.next, d.replay.shown.UnsortedList()
	again = again[:min(len(again), d.host.Page)]
	var p boltstore.ReplayPage
	var err error
	if len(again) > 0 {
		p, err = d.host.Store.ReplayOf(again)
	} else {
		p, err = d.host.Store.Replay(from, d.host.Page)
	}
	if err != nil {
		// The store has noted the damage. A relist will tell the objects that could not
		// be read.
		d.log.V(2).Info("Replay is incomplete", "source", d.host.Store.Source().String(), "handler", d.name, "err", err)
		if len(p.Entries) == 0 {
			return false
		}
	}
	if p.Epoch != d.pos.epoch {
		return true
	}
	if !p.Synced {
		return d.fillEntries(d.host.Backlog.Last()) // nothing to replay before a list; deletes need not wait for it
	}
	for d.behind(p.Seq) {
		tick := d.host.Backlog.Tick()
		if room := d.room(); !d.reload(room) && (!room || !d.fillEntries(p.Seq)) {
			d.host.Backlog.Wait(d.ctx, tick)
		}
		if d.ctx.Err() != nil {
			return false
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.startingOver.count != count || !bytes.Equal(d.replay.next, from) || d.pos.cursor != p.Seq || d.pos.mark > d.pos.cursor || d.parked.active {
		return true // the handler or its replay has started over, or gone past the page: read it again
	}
	for _, e := range p.Entries {
		d.queues.add(e.Key, &task{entry: e, seq: e.Seq, initial: true, last: e.Seq})
	}
	d.replay.shownAt = p.Seq
	if len(again) > 0 {
		d.replay.shown.Delete(again...)
	} else {
		d.replay.walk = walk{active: p.Next != nil, begun: true, next: p.Next}
	}
	d.claim.Changed()
	return true
}

// behind says whether entries up to seq must still be taken in: they have not been parked
// since, and no start-over is under way.
func (d *Handler) behind(seq uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.pos.cursor < seq && d.pos.mark <= d.pos.cursor && !d.startingOver.owed()
}
