package boltstore

import "bytes"

// Bases in the file: verified, copied, and taken along.

// carryOwn takes along into the new generation what the program has written
// while that was staged, if it is newer than the list.
func (r *Relist) carryOwn(src sourceTx, m *sourceMeta, resourceVersion string) error {
	now := r.s.metaNow()
	from, to := src.gen(now.Generation), src.gen(m.Generation)
	if r.anew() || from.items == nil {
		return nil
	}
	var written [][]byte
	keys := from.own
	if now.Unlisted {
		keys = from.items
	}
	if err := keys.each(func(rw raw) { written = append(written, bytes.Clone(rw.k)) }); err != nil {
		return err
	}
	a := &applier{s: r.s, src: src, m: m, from: to, to: to}
	for _, k := range written {
		raw := from.items.Get(k)
		if raw == nil {
			continue
		}
		key, item, err := parseRecord(k, raw)
		w := a.look(k)
		if err != nil || !newer(item.rv, resourceVersion) || w.item != nil && !newer(item.rv, w.item.rv) {
			continue // damage is not taken along
		}
		if !w.owned {
			if err := a.setBase(k, key, w.told, w.toldRaw); err != nil {
				return err
			}
		}
		if err := a.giveItem(key, w, item, bytes.Clone(raw)); err != nil {
			return err
		}
		if err := a.noteIndices(k, key, from.notes.get(k)); err != nil {
			return err
		}
	}
	return nil
}

// own verifies the bases.
func (v *verifier) own(g genTx) {
	var d digest
	_ = g.own.each(func(rw raw) {
		b := rw.open()
		if bytes.Equal(b, noBase) {
			d.add(ownHash(rw.k, "", nil))
			if _, ok := g.items.find(rw.k); !ok {
				v.problem("own: %x has neither a base nor a record", rw.k)
			}
			return
		}
		key, r, err := parseRecord(rw.k, b)
		if err != nil {
			v.problem("own: %v", err)
			return
		}
		d.add(ownHash(rw.k, key, r))
		if r.packed >= packByDict {
			v.packed[r.packed]++
		}
	})
	if d != v.m.Own {
		v.problem("own: the bases of what the program has written are not those last committed: %d of %d", d.Count, v.m.Own.Count)
	}
}

// staleOwn says whether the bases are not those that meta knows: a program that
// does not know of them has changed the source since.
func (t sourceTx) staleOwn(m *sourceMeta) bool {
	var d digest
	bad := false
	_ = t.gen(m.Generation).own.each(func(rw raw) {
		b := rw.open()
		if bytes.Equal(b, noBase) {
			d.add(ownHash(rw.k, "", nil))
			return
		}
		key, r, err := parseRecord(rw.k, b)
		if bad = bad || err != nil; err == nil {
			d.add(ownHash(rw.k, key, r))
		}
	})
	return bad || d != m.Own
}

// dropOwn forgets all bases.
func (t sourceTx) dropOwn(m *sourceMeta) error {
	g := t.gen(m.Generation)
	if g.own != nil {
		if err := g.b.DeleteBucket(bucketOwn); err != nil {
			return err
		}
	}
	m.Own = digest{}
	return nil
}

// own copies the bases of a generation. One that cannot be read is left out:
// then the source is read anew.
func (c *copier) own(gen bucketRef, sealed *items) {
	var bases bucketRef
	found := false
	c.note(c.from.each(gen, func(k, _ []byte, sub *bucketRef) {
		if sub != nil && bytes.Equal(k, bucketOwn) {
			bases, found = *sub, true
		}
	}))
	if !found {
		return
	}
	c.note(c.from.each(bases, func(k, v []byte, _ *bucketRef) {
		rw := sealed.raw(k, v)
		b := rw.open()
		key, r, raw := "", (*record)(nil), []byte(nil)
		if !bytes.Equal(b, noBase) {
			var err error
			if key, r, err = parseRecord(rw.k, b); err != nil {
				c.note(err)
				return
			}
			raw = b
		}
		at := bytes.Clone(rw.k)
		c.do(len(b), func(_ sourceTx, a *applier) error {
			if r == nil && a.to.items.Get(at) == nil {
				return nil // the program's record could not be saved
			}
			return a.setBase(at, key, r, raw)
		})
	}))
}
