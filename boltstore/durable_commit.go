package boltstore

import (
	"errors"
	"fmt"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// writeHandlers stores the handlers' reports, and collapses the journal entries of
// handlers that hold up its trimming. It returns a function to call once readers see the
// transaction.
func (s *Store) writeHandlers(t sourceTx, m *sourceMeta) (visible func(), err error) {
	all, err := t.handlers(m)
	claimed := s.claimedHandlers()
	if err != nil || len(all)+len(claimed) == 0 {
		return nil, err
	}
	type report struct {
		h  *Handler
		st *handlerState
	}
	var reports []report
	for _, h := range claimed {
		st := all[h.name]
		if st == nil { // it has none: damage has removed it since it was claimed
			st = &handlerState{}
			st.startOver(m)
			all[h.name] = st
		}
		if err := h.report(t, m, st); err != nil {
			return nil, err
		}
		st.seen(s.db.device, s.db.opts.handlerSeen())
		reports = append(reports, report{h, st})
	}
	if err := s.forgetHandlers(t, m, all); err != nil {
		return nil, err
	}
	if err := s.collapseOldest(t, m, all); err != nil {
		return nil, err
	}
	for name, st := range all {
		if err := errors.Join(t.dropUseless(name, st), t.putHandler(name, st)); err != nil {
			return nil, err
		}
	}
	return func() {
		for _, r := range reports {
			r.h.persisted(r.st)
		}
	}, nil
}

// report merges the handler's report into its state.
func (h *Handler) report(t sourceTx, m *sourceMeta, st *handlerState) error {
	h.reported, h.starting = h.changes.Load(), h.over
	p := h.p.Position()
	if h.stale = p.Epoch != m.Epoch; h.stale {
		return nil // the handler has not noticed yet that it must start over
	}
	if p.StartedOver {
		if err := t.dropParked(h.name); err != nil {
			return err
		}
		// The file may have made it start over later than the handler did. The entries
		// in between are told.
		st.Parked, st.ParkedBytes, st.mark, h.starting = 0, 0, 0, st.Over
	}
	if st.Over != h.starting {
		return nil // it reports about the time before it started over
	}
	st.Epoch, st.Cursor, st.Pending, st.reach = p.Epoch, min(p.Cursor, m.Seq), p.Pending, p.Reach
	next, err := h.s.keepPlace(p.Next)
	if err != nil {
		return err
	}
	st.Replaying, st.Next, st.Shown, st.ShownAt, st.Reset = p.Replaying, next, p.Shown, p.ShownAt, p.Reset
	st.mark = max(st.mark, min(p.low(), m.Seq))
	if err = h.parkReported(t, st, &p); errors.Is(err, ErrDamaged) {
		err = h.s.restart(t, m, h.name, st, err)
	}
	return err
}

// parkReported updates the handler's parked keys as p says. The error is ErrDamaged if parked
// entries that p relies on are damaged.
func (h *Handler) parkReported(t sourceTx, st *handlerState, p *Position) error {
	if err := st.settle(t.parked(h.name), p.Settled); err != nil || len(p.Park) == 0 {
		return err
	}
	b, err := t.createParked(h.name)
	if err != nil {
		return err
	}
	for _, pk := range p.Park {
		var entries []numbered
		for _, e := range pk.Entries {
			// Without dictionaries, which go when no record needs them.
			d := h.s.packing().plainDrafts([]format.Draft{e.draft()})[0]
			entries = append(entries, numbered{e.Seq, d})
		}
		if err := st.parkKey(b, pk.Key, max(h.s.knownSeq.Load(), st.reach), entries...); err != nil {
			return err
		}
	}
	return nil
}

// settle removes parked entries that were acknowledged. The error is ErrDamaged if they
// cannot be read.
func (st *handlerState) settle(b *layout.Box, settled map[string]uint64) error {
	if b == nil || st.Parked == 0 {
		return nil
	}
	for key, seq := range settled {
		k := index.AppendKey(nil, key)
		raw := b.Get(k)
		if raw == nil {
			continue
		}
		c, err := parseParked(raw)
		if err != nil {
			return fmt.Errorf("the parked entries of %q: %w", key, err)
		}
		if c.Last > seq {
			if c.acknowledged(seq) {
				if err := st.putParked(b, k, raw, c); err != nil {
					return err
				}
			}
			continue
		}
		st.Parked -= min(st.Parked, 1)
		st.ParkedBytes -= min(st.ParkedBytes, uint64(len(raw)))
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return nil
}
