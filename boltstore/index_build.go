package boltstore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"

	"github.com/kubewake/kubewake/boltstore/internal/format"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/index"
)

// indexSet is the indexers of a source at one time. It is never changed.
type indexSet struct{ fns cache.Indexers }

func (s *Store) indexSet() *indexSet {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.indexers
}

func (s *Store) setIndexers(set *indexSet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.indexers = set
}

// refresh computes the index values of a change that was prepared before
// indices were added.
func (s *Store) refresh(c *Change) {
	set := s.indexSet()
	if c.set == set || c.typ == cache.Deleted || c.unstored != "" {
		return
	}
	c.set = set
	s.values(c)
}

// objectOf is a change's object, decoded again where it was let go.
func (s *Store) objectOf(c *Change) (any, error) {
	if c.obj != nil {
		return c.obj, nil
	}
	payload := c.payload
	if c.by != nil {
		var err error
		if payload, err = c.by.Unpack(payload, c.size, nil); err != nil {
			return nil, fmt.Errorf("boltstore: %q: %w", c.key, err)
		}
	}
	obj, err := s.codec.Decode(payload)
	if err != nil {
		return nil, fmt.Errorf("boltstore: decode %q: %w", c.key, err)
	}
	return obj, nil
}

// reindex brings every record's values under the given indices up to date, in
// steps of one page. Before and after each step entries and records agree, so
// a crash or a concurrent change needs no care: only what is marked complete
// at the end would be missed by a second run, and that is nothing. meta and
// update are the source's, or those of a staged generation. An object that a
// function fails on is kept, without values.
func (s *Store) reindex(build cache.Indexers, meta func() *sourceMeta, update func(fn func(sourceTx, *sourceMeta) error, visible func()) error) error {
	const step = 500
	var from []byte
	var file uint64
	for begun := false; ; {
		raws, noted, next, now, err := s.rawPage(meta, from, step)
		if err != nil {
			return err
		}
		if from != nil && now != file {
			from = nil // in the other file's order the place means nothing
			continue
		}
		file = now
		changed, err := s.newValues(raws, build, noted)
		if err != nil {
			return err
		}
		if len(changed) > 0 {
			err := update(func(src sourceTx, m *sourceMeta) error {
				if !begun {
					// A program with the functions of before must not trust
					// what an interrupted run leaves.
					for name := range build {
						im := m.Indices[name]
						im.Complete = false
						m.Indices[name] = im
					}
				}
				return s.rewrite(src, m, changed)
			}, nil)
			if err != nil {
				return err
			}
			begun = true
		}
		if from = next; from == nil {
			break
		}
	}
	return update(func(_ sourceTx, m *sourceMeta) error { s.complete(m, build); return nil }, nil)
}

// complete notes that every record lists its values under the given functions.
func (s *Store) complete(m *sourceMeta, fns cache.Indexers) {
	for name, fn := range fns {
		im := m.Indices[name]
		im.Version, im.Complete = s.indexVersion(name, fn), true
		m.Indices[name] = im
	}
}

// rawPage copies records out of the file, so that user functions run outside
// any transaction. file says which one, counting those that were replaced.
func (s *Store) rawPage(meta func() *sourceMeta, from []byte, n int) (raws []layout.Raw, noted map[string][]string, next []byte, file uint64, err error) {
	err = s.view(func(_ *sourceMeta, src sourceTx) error {
		file = s.db.replaced.Load()
		m := meta()
		g := src.gen(m.Generation) // served or not
		raws, noted = nil, map[string][]string{}
		if g.Items == nil {
			return nil
		}
		var err error
		next, err = layout.Page(g.Items.Cursor(), from, func(_ []byte, r layout.Raw) bool {
			if len(raws) == n {
				return false
			}
			raws = append(raws, layout.Raw{Key: bytes.Clone(r.Key), Stored: bytes.Clone(r.Open())})
			if m.Noted.Unindexed > 0 {
				if n := g.notes.get(r.Key); n != nil && len(n.Indices) > 0 {
					noted[string(r.Key)] = n.Indices
				}
			}
			return true
		})
		return err
	})
	return raws, noted, next, file, err
}

// reindexed is what a record is to list, as long as it is still that record.
type reindexed struct {
	crc    uint32
	values []format.IndexValues
	// done are the indices whose functions were called, failed those of them that
	// failed, why one of them did.
	done, failed []string
	why          string
}

// newValues returns, by item key, the records whose values have changed, or of
// whose index functions one has failed or had failed before, as noted.
func (s *Store) newValues(raws []layout.Raw, build cache.Indexers, noted map[string][]string) (map[string]reindexed, error) {
	keys, objs, err := s.decodeAll(raws, false)
	if s.note(err) != nil && !errors.Is(err, ErrDamaged) {
		return nil, err
	}
	changed := map[string]reindexed{}
	for i, obj := range objs {
		if obj == nil {
			continue // damaged, noted, to be read anew
		}
		_, r, err := format.ParseRecord(raws[i].Key, raws[i].Stored)
		if err != nil {
			continue
		}
		c := reindexed{crc: r.CRC}
		for name, fn := range build {
			values, err := callIndexer(name, fn, obj)
			c.done = append(c.done, name)
			if err != nil {
				s.unindexed(err, keys[i])
				c.failed, c.why = append(c.failed, name), short(err)
			}
			removed, added := index.Diff(r.ValuesOf(name), values)
			if len(removed)+len(added) > 0 {
				c.values = append(c.values, format.IndexValues{Name: name, Values: values})
			}
		}
		if k := string(raws[i].Key); len(c.values)+len(c.failed)+len(noted[k]) > 0 {
			changed[k] = c
		}
	}
	return changed, nil
}

// rewrite stores the new values of records that are still there. A record that
// changed meanwhile was indexed by the new functions already.
func (s *Store) rewrite(src sourceTx, m *sourceMeta, changed map[string]reindexed) error {
	g := src.gen(m.Generation)
	if g.Items == nil {
		return nil
	}
	a := &applier{s: s, src: src, m: m, from: g, to: g, now: s.db.opts.Clock.Now().UnixNano()}
	for k, c := range changed {
		v := g.Items.Get([]byte(k))
		if v == nil {
			continue
		}
		key, old, err := format.ParseRecord([]byte(k), bytes.Clone(v))
		if err != nil || old.CRC != c.crc {
			continue
		}
		if err := a.noteReindexed([]byte(k), key, c); err != nil {
			return err
		}
		if len(c.values) == 0 {
			continue
		}
		next := *old
		next.Values = merge(old.Values, c.values)
		raw, err := next.Encode(key)
		if err != nil {
			return err
		}
		if err := a.take(key, old, v, &next); err != nil {
			return err
		}
		if err := a.give(key, &next, raw, old); err != nil {
			return err
		}
	}
	return nil
}

func merge(old, add []format.IndexValues) []format.IndexValues {
	out := append([]format.IndexValues(nil), add...)
	for _, iv := range old {
		if !has(add, iv.Name) {
			out = append(out, iv)
		}
	}
	return out
}

func has(all []format.IndexValues, name string) bool {
	for _, iv := range all {
		if iv.Name == name {
			return true
		}
	}
	return false
}
