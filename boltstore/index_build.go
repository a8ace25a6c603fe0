package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// indices are the program's index functions.
type indices struct {
	s        *source
	indexers *indexSet // under s.mu
	versions map[string]string
	number   string        // of the claim: random
	failures atomic.Uint64 // in this life
}

// indexSet is the indexers of a source at one time. It is immutable.
type indexSet struct{ fns cache.Indexers }

func (x *indices) set() *indexSet {
	x.s.mu.RLock()
	defer x.s.mu.RUnlock()
	return x.indexers
}

// add adds indices to the set.
func (b *builder) add(add cache.Indexers) error {
	b.adding.Lock()
	defer b.adding.Unlock()
	have, want := sets.KeySet(b.s.indices.set().fns), sets.KeySet(add)
	if both := have.Intersection(want); len(both) > 0 {
		return fmt.Errorf("indexer conflict: %v", both)
	}
	b.s.indices.change(func(fns cache.Indexers) { maps.Copy(fns, add) })
	b.s.mu.Lock()
	b.retryFailed() // a function that is added may have failed in an earlier life
	b.s.mu.Unlock()
	b.s.db.commit.awaitWork() // later commits enter their objects in the new indices
	return nil
}

// remove takes indices out of the set.
func (b *builder) remove(names cache.Indexers) {
	b.adding.Lock()
	defer b.adding.Unlock()
	b.s.indices.change(func(fns cache.Indexers) {
		for name := range names {
			delete(fns, name)
		}
	})
}

func (x *indices) change(fn func(cache.Indexers)) {
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	fns := maps.Clone(x.indexers.fns)
	fn(fns)
	x.indexers = &indexSet{fns}
}

// build builds the indices in the file that are not complete there. The caller holds
// building.
func (b *builder) build(add cache.Indexers) error {
	m := b.s.metaNow()
	build, names := cache.Indexers{}, map[string]bool{}
	for name, fn := range add {
		if b.s.indices.built(m, name) && m.Indices[name].Failed == 0 {
			continue
		}
		if build[name] = fn; !b.s.indices.built(m, name) {
			names[name] = true
		}
	}
	if len(build) > 0 {
		if b.unreadable(m) {
			return nil // the next relist indexes all objects
		}
		b.s.memory.await()
		b.count(m, names)
		if err := b.reindex(build); err != nil {
			return err
		}
	}
	b.s.memory.index()
	return nil
}

// unreadable says whether the records are of another Go type, and not to be decoded.
func (b *builder) unreadable(m *sourceMeta) bool {
	return m.Contents != contentsNone && m.TypeHash != b.s.form.typeHash && !(b.s.form.lenient && b.s.form.readable(m))
}

// objectOf returns a change's object. It decodes the payload if the object was let go.
func (x *indices) objectOf(c *Change) (any, error) {
	if c.obj != nil {
		return c.obj, nil
	}
	var r format.Record
	c.fill(&r)
	payload, err := plain(&r, nil)
	if err != nil {
		return nil, fmt.Errorf("boltstore: %q: %w", c.key, err)
	}
	obj, err := x.s.coder.decode(payload)
	if err != nil {
		return nil, fmt.Errorf("boltstore: decode %q: %w", c.key, err)
	}
	return obj, nil
}

// reindex brings every record's values in the given indices up to date, page by page. An
// object whose function fails stays without values.
//
// Entries and records agree before and after each step. So a crash or a concurrent change
// does no harm: a later run does the rest. The indices become complete at the end.
func (b *builder) reindex(build cache.Indexers) error {
	const (
		step   = 500 // records of a commit, if it has 1 MiB at most
		atOnce = 50  // objects in memory
	)
	var from []byte
	before, failed := b.s.metaNow(), map[string]uint64{}
	for begun := false; ; {
		select {
		case <-b.s.life.ended:
			return fmt.Errorf("boltstore: %s was released: %w", b.s.name, ErrClosed)
		default:
		}
		raws, next, err := b.rawPage(from, step)
		if err != nil {
			return err
		}
		changed := map[string]reindexed{}
		for some := range slices.Chunk(raws, atOnce) {
			values, err := b.newValues(some, build, failed)
			if err != nil {
				return err
			}
			maps.Copy(changed, values)
		}
		if len(changed) > 0 {
			err := b.s.noteMeta(func(src sourceTx, m *sourceMeta) error {
				if !begun {
					// A program with the old functions must not trust entries of an
					// interrupted run.
					for name := range build {
						if im, ok := m.Indices[name]; ok {
							im.Complete = false
							m.Indices[name] = im
						}
					}
				}
				return b.rewrite(src, m, changed)
			})
			if err != nil {
				return err
			}
			begun = true
		}
		if from = next; from == nil {
			break
		}
	}
	return b.s.noteMeta(func(_ sourceTx, m *sourceMeta) error {
		b.s.indices.complete(m, build)
		for name := range build {
			im := m.Indices[name]
			im.Failed -= min(im.Failed, before.Indices[name].Failed)
			im.Failed += failed[name] // with those of changes meanwhile
			m.Indices[name] = im
		}
		return nil
	})
}

// complete notes that every record has values by the given functions.
func (x *indices) complete(m *sourceMeta, fns cache.Indexers) {
	for name, fn := range fns {
		im := m.Indices[name]
		im.Version, im.Complete = x.version(name, fn), true
		m.Indices[name] = im
	}
}

// rawPage copies records out of the file, so that user functions run outside any
// transaction.
func (b *builder) rawPage(from []byte, n int) (raws []layout.Raw, next []byte, err error) {
	err = b.s.view(func(_ *sourceMeta, src sourceTx) error {
		raws = nil
		g := src.contents()
		if g.Items == nil {
			return nil
		}
		var err error
		raws, next, err = b.s.reader.pageOf(g, from, n, 4*pageBytes)
		for i, r := range raws {
			raws[i] = layout.Raw{Key: bytes.Clone(r.Key), Stored: bytes.Clone(r.Open())}
		}
		return err
	})
	return raws, next, err
}

// count counts the indices that are built or brought up to date. It logs them
// if there are objects.
func (b *builder) count(m *sourceMeta, build map[string]bool) {
	if m.Items.Count == 0 {
		return
	}
	b.s.mu.Lock()
	if b.counted == nil {
		b.counted = map[string]uint64{}
	}
	for name := range build {
		b.counted[name]++
	}
	b.s.mu.Unlock()
	for name := range build {
		if im := m.Indices[name]; im.Complete && b.s.indices.versions[name] == "" {
			b.s.db.warned.unversioned.Do(func() {
				b.s.db.log().Info(
					"Indices without a version are built again at each start, from the file; IndexVersions keeps them",
					"source", b.s.name.String(), "index", name)
			})
			continue
		}
		why := "it is new"
		if im, ok := m.Indices[name]; ok && im.Complete {
			why = "its version has changed"
		} else if ok {
			why = "it was not complete"
		}
		b.s.db.log().Info("Indexing the objects in the file", "source", b.s.name.String(), "index", name, "reason",
			why, "objects", m.Items.Count)
	}
}

// reindexed has the new index values of a record, valid while the record has this
// checksum.
type reindexed struct {
	crc    uint32
	values []format.IndexValues
}

// newValues returns, by item key, the records whose values have changed. It counts in failed
// how often a function failed.
func (b *builder) newValues(raws []layout.Raw, build cache.Indexers, failed map[string]uint64) (
	map[string]reindexed, error,
) {
	keys, objs, err := b.s.reader.decodeAll(raws, false)
	if b.s.health.note(err) != nil && !errors.Is(err, ErrDamaged) {
		return nil, err
	}
	changed := map[string]reindexed{}
	one := func(i int, call func(name string, fn cache.IndexFunc, obj any) ([]string, error)) {
		if objs[i] == nil {
			return // damaged; the source is degraded
		}
		_, r, err := b.s.coder.owner.ParseRecord(raws[i].Key, raws[i].Stored)
		if err != nil {
			return
		}
		c := reindexed{crc: r.CRC}
		for name, fn := range build {
			values, err := call(name, fn, objs[i])
			if err != nil {
				b.s.indices.unindexed(err, keys[i])
				failed[name]++
			}
			removed, added := index.Diff(r.ValuesOf(name), values)
			if len(removed)+len(added) > 0 {
				c.values = append(c.values, format.IndexValues{Name: name, Values: values})
			}
		}
		if len(c.values) > 0 {
			changed[string(raws[i].Key)] = c
		}
	}
	for i := 0; i < len(objs); i++ {
		whole := apart(func() {
			for ; i < len(objs); i++ {
				one(i, callIndexer)
			}
		})
		if !whole {
			one(i, func(string, cache.IndexFunc, any) ([]string, error) { return nil, errExited })
		}
	}
	return changed, nil
}

// rewrite stores the new values of records that are still there. A record that has
// changed since already has its values.
func (b *builder) rewrite(src sourceTx, m *sourceMeta, changed map[string]reindexed) error {
	g := src.contents()
	if g.Items == nil {
		return nil
	}
	a := &applier{s: b.s, src: src, m: m, in: g, now: b.s.db.opts.Clock.Now().UnixNano()}
	for k, c := range changed {
		v := g.Items.Get([]byte(k))
		if v == nil {
			continue
		}
		key, old, err := b.s.coder.owner.ParseRecord([]byte(k), bytes.Clone(v))
		if err != nil || old.CRC != c.crc {
			continue
		}
		next := *old
		next.Values = merge(old.Values, c.values)
		raw, err := next.Encode(b.s.coder.owner, key)
		if err != nil {
			return err
		}
		if err := a.take(key, old, v, &next); err != nil {
			return err
		}
		a.show(itemChange{key: key, next: &next, reindexed: true})
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

// builder keeps the indices in the file complete.
type builder struct {
	s        *source
	building sync.Mutex        // held while indices are built
	adding   sync.Mutex        // held while they are added to the set
	tried    sync.Map          // <-chan struct{} by index: see readBuilt
	counted  map[string]uint64 // how often the objects were indexed again, by index; under s.mu
	retrying bool              // a goroutine calls failed index functions again; under s.mu
}
