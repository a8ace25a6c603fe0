package boltstore

import (
	"bytes"
	"errors"
	"time"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/internal/versions"
)

var errOwnUnknown = errors.New("nothing shows which objects are own writes")

// This file verifies bases, copies them, and carries them into a new generation.

// carryOwn copies own writes that are newer than the list into a staged generation. It
// comes last, since the list's version was not known before. carried says whether there
// are any.
func (r *Relist) carryOwn(src sourceTx, m *sourceMeta, resourceVersion string) (carried bool, err error) {
	now := r.s.metaNow()
	from, to := src.gen(now.Generation), src.gen(m.Generation)
	if r.dropsOwn() || from.Items == nil {
		return false, nil
	}
	var written [][]byte
	keys := from.Own
	if now.Unlisted {
		keys = from.Items
	}
	if err := keys.Each(func(rw layout.Raw) { written = append(written, bytes.Clone(rw.Key)) }); err != nil {
		return false, err
	}
	a := &applier{s: r.s.Store, src: src, m: m, from: to, to: to}
	for _, k := range written {
		raw := from.Items.Get(k)
		if raw == nil {
			continue
		}
		key, item, err := r.s.owner.ParseRecord(k, raw)
		was := a.look(k)
		if err != nil || !versions.Newer(item.ResourceVersion, resourceVersion) || was.item != nil && !versions.Newer(item.ResourceVersion, was.item.ResourceVersion) {
			continue // damage is not copied
		}
		carried = true
		if !was.owned {
			if err := a.setBase(k, key, was.base, was.baseRaw); err != nil {
				return false, err
			}
		}
		if err := a.giveItem(key, was, item, bytes.Clone(raw)); err != nil {
			return false, err
		}
		n := from.notes.get(k)
		if n != nil && n.damage != nil {
			m.doubtIndices()
		}
		if err := a.noteIndices(k, key, n); err != nil {
			return false, err
		}
	}
	return carried, nil
}

// own verifies the bases of a generation.
func (v *verifier) own(g genTx) {
	var d digest
	_ = g.Own.Each(func(rw layout.Raw) {
		b := rw.Open()
		if bytes.Equal(b, noBase) {
			d.add(ownHash(rw.Key, "", nil))
			if _, ok := g.Items.Find(rw.Key); !ok {
				v.problem("own: %x has neither a base nor a record", rw.Key)
			}
			return
		}
		key, r, err := v.m.owner().ParseRecord(rw.Key, b)
		if err != nil {
			v.problem("own: %v", err)
			return
		}
		d.add(ownHash(rw.Key, key, r))
	})
	if d != v.m.Own {
		v.problem("own: the bases of own writes are not those last committed: %d of %d", d.Count, v.m.Own.Count)
	}
}

// staleOwn says whether the bases differ from meta's digest. That is so if an older
// program, which does not know bases, has changed the source since.
func (t sourceTx) staleOwn(m *sourceMeta) bool {
	var d digest
	bad := false
	_ = t.gen(m.Generation).Own.Each(func(rw layout.Raw) {
		b := rw.Open()
		if bytes.Equal(b, noBase) {
			d.add(ownHash(rw.Key, "", nil))
			return
		}
		key, r, err := t.Owner().ParseRecord(rw.Key, b)
		if bad = bad || err != nil; err == nil {
			d.add(ownHash(rw.Key, key, r))
		}
	})
	return bad || d != m.Own
}

// dropOwn removes all bases and notes their keys.
func (t sourceTx) dropOwn(m *sourceMeta, now time.Time) error {
	g := t.gen(m.Generation)
	if g.Own != nil {
		a := &applier{m: m, to: g, now: now.UnixNano()}
		var keys [][]byte
		if err := g.Own.Each(func(rw layout.Raw) { keys = append(keys, bytes.Clone(rw.Key)) }); err != nil {
			return err
		}
		for _, k := range keys {
			if err := a.noteLost(k, errOwnUnknown); err != nil {
				return err
			}
		}
		if err := layout.Drop(g.Bucket, layout.BucketOwn); err != nil {
			return err
		}
	}
	m.Own = digest{}
	return nil
}

// noteLost notes that the server's last state at k is lost. Handlers are told the state
// in the next list, whatever the program has written.
func (a *applier) noteLost(k []byte, why error) error {
	key, _, err := a.m.owner().ParseRecord(k, a.to.Items.Get(k))
	if err != nil {
		return nil // nothing is there
	}
	old := a.to.notes.get(k)
	n := &note{Key: key}
	if old != nil {
		*n = *old
	}
	n.Unstored, n.Time, n.Why = true, a.now, short(why)
	return a.to.notes.put(a.m, k, n, old)
}

// own copies the bases of a generation. It leaves out a base that cannot be read, and
// the source is listed.
func (c *copier) own(gen pages.Bucket, sealed *layout.Items) {
	var bases pages.Bucket
	found := false
	c.note(c.from.Each(gen, func(k, _ []byte, sub *pages.Bucket) {
		if sub != nil && bytes.Equal(k, layout.BucketOwn) {
			bases, found = *sub, true
		}
	}))
	if !found {
		return
	}
	c.note(c.from.Each(bases, func(k, v []byte, _ *pages.Bucket) {
		rw := layout.Raw{Key: k, Stored: v, In: sealed}
		b := rw.Open()
		key, r, raw := "", (*format.Record)(nil), []byte(nil)
		if !bytes.Equal(b, noBase) {
			var err error
			if key, r, err = c.owner().ParseRecord(rw.Key, b); err != nil {
				c.note(err)
				at := bytes.Clone(rw.Key)
				c.do(len(b), func(_ sourceTx, a *applier) error { return a.noteLost(at, err) })
				return
			}
			raw = b
		}
		at := bytes.Clone(rw.Key)
		c.do(len(b), func(_ sourceTx, a *applier) error {
			if r == nil && a.to.Items.Get(at) == nil {
				return nil // the program's record could not be saved
			}
			return a.setBase(at, key, r, raw)
		})
	}))
}
