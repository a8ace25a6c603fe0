package boltstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
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

// parked is a parked key: a durable handler's unacknowledged entries of one key,
// collapsed. It has the objects that are gone, in order, then the one that is there. A
// key is parked when the journal exceeds its bounds and the handler is behind, or when
// the handler's memory is full.
type parked struct {
	Key   string `msgpack:"key"`
	Last  uint64 `msgpack:"last"`  // seq of the last entry
	Count uint64 `msgpack:"count"` // entries
	Time  int64  `msgpack:"time"`  // time of the last entry, unix ns
	Gone  []gone `msgpack:"gone"`
	Prev  []byte `msgpack:"prev"` // record before the entry Since; nil if there was none, or it is among Gone
	Since uint64 `msgpack:"since"`
	Next  []byte `msgpack:"next"` // record now; nil if the object is gone
}

// gone is an object that was deleted, in its final or last known state.
type gone struct {
	Record []byte `msgpack:"record"`
	Final  bool   `msgpack:"final"`
	Seq    uint64 `msgpack:"seq"` // seq of the delete; 0 if not known
}

func (g gone) born() uint64 {
	if r, err := format.ParseUnverified(g.Record); err == nil {
		return r.Born
	}
	return 0
}

// maxGone is how many deleted objects of one key are kept, even if the handler cannot
// have been told them.
const maxGone = 8

// fold adds the key's next entry. told is the seq up to which the handler may have been
// told. If there are many objects, those that came and went after told may be left out.
func (p *parked) fold(seq uint64, d format.Draft, told uint64) {
	first := p.Count == 0
	p.Last, p.Time = seq, d.Time
	p.Count++
	switch d.Type {
	case cache.Deleted:
		g := gone{Record: d.Next, Final: true, Seq: seq}
		if d.Next == nil {
			g.Record, g.Final = d.Previous(), false
		}
		if n := len(p.Gone); n >= maxGone && p.Gone[n-1].born() > told {
			p.Gone = p.Gone[:n-1]
		}
		p.Gone = append(p.Gone, g)
		p.Prev, p.Next = nil, nil
	case cache.Updated:
		if first {
			p.Prev, p.Since = d.Previous(), seq
		}
		p.Next = d.Next
	default:
		p.Next = d.Next
	}
}

// drafts returns entries that tell a handler the same. The handler has been shown
// objects as of seq shown or earlier. It may have been shown the object after Prev, and
// never Prev.
func (p *parked) drafts(shown uint64) (ds []numbered) {
	for _, g := range p.Gone {
		d := format.Draft{Type: cache.Deleted, Time: p.Time, Key: p.Key}
		if g.Final {
			d.Next = g.Record
		}
		d.Prev = format.DiffOf(d.Next, g.Record)
		ds = append(ds, numbered{cmp.Or(g.Seq, p.Last), d})
	}
	if p.Next != nil {
		d := format.Draft{Type: cache.Added, Time: p.Time, Key: p.Key, Next: p.Next}
		if p.Prev != nil && (shown == 0 || p.Since > shown) {
			d.Type, d.Prev = cache.Updated, format.DiffOf(d.Next, p.Prev)
		}
		ds = append(ds, numbered{p.Last, d})
	}
	return ds
}

// entries returns the drafts as entries.
func (p *parked) entries(s *Store, shown uint64) (all []*Entry) {
	for _, d := range p.drafts(shown) {
		e := newEntry(s, d.seq, d.Draft)
		e.collapsed = true
		all = append(all, e)
	}
	return all
}

// acknowledged removes everything that a handler has acknowledged up to a seq, and says
// whether there was any. The present object stays as a whole, even if only a part of its
// changes was acknowledged.
func (p *parked) acknowledged(seq uint64) bool {
	n := len(p.Gone)
	p.Gone = slices.DeleteFunc(p.Gone, func(g gone) bool { return g.Seq > 0 && g.Seq <= seq })
	return len(p.Gone) < n
}

func parseParked(b []byte) (*parked, error) {
	p := &parked{}
	if err := format.Decode(b, p); err != nil {
		return nil, err
	}
	return p, nil
}

// ParkedPage is a run of parked keys.
type ParkedPage struct {
	// Keys are the parked keys. For each key, Last is the seq up to which it is parked,
	// and Entries tell the same as the collapsed ones. A delete has its own seq; other
	// entries have Last.
	Keys    []string
	Last    []uint64
	Entries [][]*Entry
	// Next is where the next page begins, nil after the last one.
	Next []byte
	// Mark is the seq up to which the handler needs nothing of the journal.
	Mark uint64
}

// Parked reads the handler's parked keys from the given place on (nil is the start), at
// most n keys and about a MiB. shown is Position.ShownAt: an update that began before it
// becomes an Added.
func (h *Handler) Parked(from []byte, n int, shown uint64) (p ParkedPage, err error) {
	return h.readParked(func(p *ParkedPage, b *layout.Box, g genTx) (err error) {
		var errs []error
		size := 0
		p.Next, err = b.Page(from, func(v []byte) bool {
			if len(p.Keys)+len(errs) >= n || size >= 1<<20 {
				return false
			}
			size += len(v)
			if err := p.add(h.s, g, v, shown); err != nil {
				errs = append(errs, err)
			}
			return true
		})
		return errors.Join(append(errs, err)...)
	})
}

// ParkedOf reads the given parked keys, as a page. Keys that are not parked are left
// out.
func (h *Handler) ParkedOf(keys []string, shown uint64) (p ParkedPage, err error) {
	return h.readParked(func(p *ParkedPage, b *layout.Box, g genTx) error {
		var errs []error
		for _, key := range keys {
			if v := b.Get(index.AppendKey(nil, key)); v != nil {
				errs = append(errs, p.add(h.s, g, v, shown))
			}
		}
		return errors.Join(errs...)
	})
}

func (h *Handler) readParked(fn func(p *ParkedPage, b *layout.Box, g genTx) error) (p ParkedPage, err error) {
	err = h.s.view(func(m *sourceMeta, t sourceTx) error {
		p = ParkedPage{}
		st, err := t.handler(h.name)
		if err != nil {
			return err
		}
		p.Mark = st.mark
		if b := t.parked(h.name); b != nil {
			g := t.gen(m.Generation)
			h.s.mu.RLock()
			if h.s.hides(m) {
				g = genTx{} // a list may replace it before the entries are told
			}
			h.s.mu.RUnlock()
			return fn(&p, b, g)
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("boltstore: handler %q of %s: %w", h.name, h.s.source, err)
	}
	return p, err
}

func (p *ParkedPage) add(s *Store, g genTx, v []byte, shown uint64) error {
	pk, err := parseParked(v)
	if err != nil {
		return fmt.Errorf("parked: %w", err)
	}
	all := pk.entries(s, shown)
	if n := len(all); pk.Next != nil && g.Items != nil {
		all[n-1].present = bytes.Equal(pk.Next, g.shown(index.AppendKey(nil, pk.Key)))
	}
	p.Keys, p.Last, p.Entries = append(p.Keys, pk.Key), append(p.Last, pk.Last), append(p.Entries, all)
	return nil
}

func (t sourceTx) handler(name string) (*handlerState, error) {
	v := t.HandlerBox(t.Root.Bucket(layout.BucketHandlers)).Get([]byte(name))
	if v == nil {
		return nil, errors.New("it has been removed")
	}
	return parseHandlerState(v)
}

// ReadJournal is Claimed.ReadJournal, and also returns the handler's mark as of the same
// commit. It leaves out entries up to the mark, which may be parked. Each entry has its
// own memory, so an entry that is kept for long does not keep its block.
func (h *Handler) ReadJournal(seq uint64) (entries []*Entry, mark uint64, err error) {
	entries, err = h.s.reading().readJournal(seq, func(t sourceTx) error {
		st, err := t.handler(h.name)
		if err == nil {
			mark = st.mark
		}
		return err
	})
	if mark >= seq {
		return nil, mark, nil
	}
	for _, e := range entries {
		e.next, e.prev = bytes.Clone(e.next), bytes.Clone(e.prev)
	}
	return entries, mark, err
}

// Collapse replaces entries of one key, given in order, by fewer that tell a handler the
// same. They say which objects are gone and which is there now, with the seq of the last
// entry. told is the seq up to which the handler may have been told. If many objects
// came and went after it, some of these are left out.
func Collapse(entries []*Entry, told uint64) []*Entry {
	p := &parked{}
	for _, e := range entries {
		p.Key = e.Key
		p.fold(e.Seq, e.draft(), told)
	}
	return p.entries(entries[0].s, 0)
}

// handlerStates returns the states of all handlers, with how far behind they are.
func (t sourceTx) handlerStates(m *sourceMeta, d *device) ([]HandlerState, error) {
	states, err := t.handlers(m)
	if err != nil {
		return nil, err
	}
	var all []HandlerState
	for _, name := range slices.Sorted(maps.Keys(states)) {
		st := states[name]
		h := HandlerState{Name: name, Seen: time.Unix(0, st.Seen), Mark: st.mark, Entries: m.Seq - min(st.mark, m.Seq), Pending: len(st.Pending),
			Parked: st.Parked, ParkedBytes: st.ParkedBytes, Collapsed: st.Collapsed, Replaying: st.Replaying || len(st.Shown) > 0, Reset: st.Reset}
		if age, ok := d.age(st.Seen, st.SeenBy); ok {
			h.SeenAge = &age
		}
		if j := t.Journal(); j != nil && h.Entries > 0 {
			first, block, err := t.seekBlock(j, st.mark+1)
			if err == nil && block != nil && first <= m.Seq {
				drafts, err := t.unpackBlock(first, block)
				if i := int(st.mark + 1 - min(first, st.mark+1)); err == nil && i < len(drafts) {
					h.Behind, h.BehindUnknown = d.clock.Now().Sub(time.Unix(0, drafts[i].Time)), !m.datedBy(d, st.mark+1)
					if h.BehindUnknown = h.BehindUnknown || h.Behind < 0; h.BehindUnknown {
						h.Behind = 0
					}
				}
				c := j.Cursor()
				for k, v := c.Seek(layout.U64(first)); k != nil && binary.BigEndian.Uint64(k) <= m.Seq; k, v = c.Next() {
					h.Bytes += uint64(len(v))
				}
			}
		}
		all = append(all, h)
	}
	return all, nil
}

// handlers verifies the positions of durable handlers and their parked keys.
func (v *verifier) handlers(src sourceTx) {
	states := map[string]*handlerState{}
	_ = src.HandlerBox(src.Root.Bucket(layout.BucketHandlers)).Each(func(k, b []byte) {
		st, err := parseHandlerState(b)
		if err == nil {
			err = st.isOf(string(k))
		}
		if err != nil {
			v.problem("handler %q: %v", k, err)
			return
		}
		states[string(k)] = st
		if st.mark > v.m.Seq || st.Cursor > v.m.Seq {
			v.problem("handler %q is at %d and %d, above the last entry %d", k, st.mark, st.Cursor, v.m.Seq)
		}
		_ = src.parked(string(k)).Each(func(pk, b []byte) {
			p, err := parseParked(b)
			switch {
			case err != nil:
				v.problem("handler %q: parked %x: %v", k, pk, err)
			case p.Last > v.m.Seq:
				v.problem("handler %q: %q is parked up to %d, above the last entry %d", k, p.Key, p.Last, v.m.Seq)
			}
		})
		if err := src.parkedAs(string(k), st); err != nil {
			v.problem("handler %q: %v", k, err)
		}
	})
	if b := src.Root.Bucket(layout.BucketParked); b != nil {
		_ = b.ForEachBucket(func(k []byte) error {
			if states[string(k)] == nil {
				v.problem("keys are parked for handler %q, which does not exist", k)
			}
			return nil
		})
	}
}

// parkedAs returns ErrDamaged if other keys are parked than the state counts. Old or swapped
// pages can hide keys, and each value that is left verifies.
func (t sourceTx) parkedAs(name string, st *handlerState) error {
	var keys, bytes uint64
	err := t.parked(name).Each(func(_, b []byte) {
		keys++
		bytes += uint64(len(b))
	})
	if err == nil && (keys != st.Parked || bytes != st.ParkedBytes) {
		err = fmt.Errorf("%w: %d keys with %d bytes are parked, not %d with %d", ErrDamaged, keys, bytes, st.Parked, st.ParkedBytes)
	}
	return err
}
