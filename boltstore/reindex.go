package boltstore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/kubewake/kubewake/index"
	"k8s.io/client-go/tools/cache"
)

// reindex brings every record's values under the given indices up to date, in
// steps of one page. Before and after each step entries and records agree, so
// a crash or a concurrent change needs no care: only what is marked complete
// at the end would be missed by a second run, and that is nothing.
func (s *Store) reindex(build cache.Indexers) error {
	const step = 500
	if m := s.metaNow(); m.Generation > 0 && m.TypeHash != s.type_ {
		return nil // all objects will be read anew, and indexed then
	}
	var from []byte
	begun := false
	for {
		raws, next, err := s.rawPage(from, step)
		if err != nil {
			return err
		}
		changed, err := s.newValues(raws, build)
		if err != nil {
			return err
		}
		if len(changed) > 0 {
			if err := s.begin(build, &begun); err != nil {
				return err
			}
			if err := s.rewrite(changed); err != nil {
				return err
			}
		}
		if from = next; from == nil {
			break
		}
	}
	return s.updateMeta(func(_ sourceTx, m *sourceMeta) error {
		for name, fn := range build {
			im := m.Indices[name]
			im.Version, im.Complete = s.indexVersion(name, fn), true
			m.Indices[name] = im
		}
		return nil
	})
}

// begin marks the indices incomplete before the first record changes: a program
// with the function of before must not trust what an interrupted run left.
func (s *Store) begin(build cache.Indexers, begun *bool) error {
	if *begun {
		return nil
	}
	*begun = true
	return s.updateMeta(func(_ sourceTx, m *sourceMeta) error {
		for name := range build {
			im := m.Indices[name]
			im.Complete = false
			m.Indices[name] = im
		}
		return nil
	})
}

// rawPage copies records out of the file, so that user functions run outside
// any transaction.
func (s *Store) rawPage(from []byte, n int) (raws []raw, next []byte, err error) {
	err = s.view(func(m *sourceMeta, src sourceTx) error {
		g := src.gen(m.Generation) // served or not
		if g.items == nil {
			return nil
		}
		c := g.items.Cursor()
		k, v := c.Seek(from)
		for ; k != nil && len(raws) < n; k, v = c.Next() {
			raws = append(raws, raw{bytes.Clone(k), bytes.Clone(v)})
		}
		next = bytes.Clone(k)
		return nil
	})
	return raws, next, err
}

// reindexed is what a record is to list, as long as it is still that record.
type reindexed struct {
	crc    uint32
	values []indexValues
}

// newValues returns, by item key, the records whose values have changed.
func (s *Store) newValues(raws []raw, build cache.Indexers) (map[string]reindexed, error) {
	keys, objs, err := s.decodeAll(raws, false)
	if s.note(err) != nil && !errors.Is(err, ErrDamaged) {
		return nil, err
	}
	changed := map[string]reindexed{}
	for i, obj := range objs {
		if obj == nil {
			continue // damaged, noted, to be read anew
		}
		_, r, err := parseRecord(raws[i].k, raws[i].v)
		if err != nil {
			continue
		}
		for name, fn := range build {
			values, err := callIndexer(name, fn, obj)
			if err != nil {
				return nil, fmt.Errorf("%q: %w", keys[i], err)
			}
			removed, added := index.Diff(r.valuesOf(name), values)
			if len(removed)+len(added) > 0 {
				k := string(raws[i].k)
				changed[k] = reindexed{r.crc, append(changed[k].values, indexValues{name, values})}
			}
		}
	}
	return changed, nil
}

// rewrite stores the new values of records that are still there. A record that
// changed meanwhile was indexed by the new functions already.
func (s *Store) rewrite(changed map[string]reindexed) error {
	return s.updateMeta(func(src sourceTx, m *sourceMeta) error {
		g := src.gen(m.Generation)
		a := &applier{s: s, src: src, m: m, from: g, to: g}
		for k, c := range changed {
			v := g.items.Get([]byte(k))
			if v == nil {
				continue
			}
			key, old, err := parseRecord([]byte(k), bytes.Clone(v))
			if err != nil || old.crc != c.crc {
				continue
			}
			next := *old
			next.values = merge(old.values, c.values)
			raw, err := next.encode(key)
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
	})
}

func merge(old, add []indexValues) []indexValues {
	out := append([]indexValues(nil), add...)
	for _, iv := range old {
		if !has(add, iv.name) {
			out = append(out, iv)
		}
	}
	return out
}

func has(all []indexValues, name string) bool {
	for _, iv := range all {
		if iv.name == name {
			return true
		}
	}
	return false
}
