package boltstore

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// GetIndexers returns a copy of the indexers.
func (s *Store) GetIndexers() cache.Indexers { return maps.Clone(s.indices.set().fns) }

func (x *indices) function(name string) (cache.IndexFunc, error) {
	if f := x.set().fns[name]; f != nil {
		return f, nil
	}
	if x.s.life.viewed { // the file may have it by now
		err := x.s.view(func(m *sourceMeta, _ sourceTx) error { x.find(m); return nil })
		if f := x.set().fns[name]; f != nil || x.s.health.note(err) != nil {
			return f, err
		}
	}
	//nolint:staticcheck // client-go's exact text is relied on
	return nil, fmt.Errorf("Index with name %s does not exist", name)
}

// values computes the index values of a change's object. An index whose function fails or
// panics has no values; meta counts the failure. Functions of the program's own run in
// a goroutine of their own. If one ends it, all have failed, and the caller's goes on, which
// may be the committer's or the Reflector's.
func (x *indices) values(c *Change) {
	c.values, c.failed = nil, nil
	for name, fn := range c.set.fns {
		if !isNamespaceIndex(name, fn) {
			if !apart(func() { x.compute(c) }) {
				x.noValues(c, errExited)
			}
			return
		}
	}
	x.compute(c)
}

// isNamespaceIndex says whether an index is client-go's own by namespace.
func isNamespaceIndex(name string, fn cache.IndexFunc) bool {
	return name == cache.NamespaceIndex &&
		reflect.ValueOf(fn).Pointer() == reflect.ValueOf(cache.MetaNamespaceIndexFunc).Pointer()
}

// apart runs fn in a goroutine of its own and waits for its end. It says whether fn has
// returned, and not ended the goroutine.
func apart(fn func()) (returned bool) {
	var ended sync.WaitGroup
	ended.Go(func() { fn(); returned = true })
	ended.Wait()
	return returned
}

func (x *indices) compute(c *Change) {
	obj, undecoded := x.objectOf(c)
	for _, name := range slices.Sorted(maps.Keys(c.set.fns)) {
		var values []string
		err := undecoded
		if err == nil {
			values, err = callIndexer(name, c.set.fns[name], obj)
		}
		if err != nil {
			c.failed = append(c.failed, name)
			x.unindexed(err, c.key)
		}
		c.values = append(c.values, format.IndexValues{Name: name, Values: values})
	}
}

// refresh computes the index values of a change that was prepared before indices were
// added.
func (x *indices) refresh(c *Change) {
	set := x.set()
	if c.set == set || c.typ == cache.Deleted || c.unstored != "" {
		return
	}
	c.set = set
	x.values(c)
}

var errExited = errors.New("an index function has ended its goroutine (runtime.Goexit, t.FailNow)")

// noValues notes that all index functions have failed for a change.
func (x *indices) noValues(c *Change, why error) {
	c.values, c.failed = nil, slices.Sorted(maps.Keys(c.set.fns))
	for _, name := range c.failed {
		c.values = append(c.values, format.IndexValues{Name: name})
	}
	x.unindexed(why, c.key)
}

// unindexed logs failures of index functions: the first, the second, the fourth, and so
// on.
func (x *indices) unindexed(err error, key string) {
	if n := x.failures.Add(1); n&(n-1) == 0 {
		x.s.db.log().Error(err, "An object is without values in an index until its function succeeds", "source",
			x.s.name.String(), "key", key, "failures", n)
	}
}

// callIndexer calls an index function, which may use the slice that it returns again.
func callIndexer(name string, fn cache.IndexFunc, obj any) (values []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("index %s: its function panicked: %v", name, r)
		}
	}()
	if values, err = fn(obj); err != nil {
		return nil, fmt.Errorf("index %s: %w", name, err)
	}
	switch len(values) {
	case 0:
		return nil, nil
	case 1:
		return []string{values[0]}, nil
	}
	return sets.List(sets.New(values...)), nil
}

// Index returns the objects that share a value of the index with obj.
func (s *Store) Index(name string, obj any) ([]any, error) {
	fn, err := s.indices.function(name)
	if err != nil {
		return nil, err
	}
	values, err := fn(obj)
	if err != nil {
		return nil, err
	}
	return s.reader.byIndex(name, values)
}

// ByIndex returns the objects that have the value under the index.
func (s *Store) ByIndex(name, value string) ([]any, error) {
	if _, err := s.indices.function(name); err != nil {
		return nil, err
	}
	if r := s.memory.shown(); r != nil && r.has(name) {
		return r.store.ByIndex(name, value)
	}
	return s.reader.byIndex(name, []string{value})
}

func (rd *reader) byIndex(name string, values []string) ([]any, error) {
	if r := rd.s.memory.shown(); r != nil && r.has(name) {
		if len(values) == 1 { // without an allocation
			return r.store.ByIndex(name, values[0])
		}
		return r.store.Index(name, indexValues(values))
	}
	objs := []any{}
	built, err := rd.readBuilt(name, func(m *sourceMeta, g contentsTx) error {
		keys, err := rd.keysOf(m, g, name, values)
		if err != nil {
			return err
		}
		raws := make([]layout.Raw, 0, len(keys))
		var missing error
		for _, key := range keys {
			k := index.AppendKey(nil, key)
			if r, ok := g.Items.Find(k); ok {
				raws = append(raws, r)
			} else {
				missing = fmt.Errorf("index %s: %w: it lists %q, which is missing", name, ErrDamaged, key)
			}
		}
		_, decoded, err := rd.decodeListed(raws, true, name, values)
		objs = slices.DeleteFunc(decoded, func(o any) bool { return o == nil })
		return errors.Join(missing, err)
	})
	if !built {
		asked := oneOf(values)
		err = rd.scan(name, func(_ string, obj any, has []string) {
			if slices.ContainsFunc(has, asked) {
				objs = append(objs, obj)
			}
		})
	}
	if rd.s.health.note(err) != nil {
		return nil, fmt.Errorf("boltstore: %s: %w", rd.s.name, err)
	}
	return objs, nil
}

// keysOf returns the keys that have one of the values, each once and sorted.
func (rd *reader) keysOf(m *sourceMeta, g contentsTx, name string, values []string) ([]string, error) {
	b, err := rd.openIndex(m, g, name)
	if b == nil {
		return []string{}, err
	}
	found := sets.New[string]()
	for _, value := range values {
		if err := b.Keys(value, func(key string) { found.Insert(key) }); err != nil {
			return nil, fmt.Errorf("index %s: %w: %v", name, ErrDamaged, err)
		}
	}
	return sets.List(found), nil
}

// openIndex opens an index of the file, nil if it has no values. The index must be complete: a
// view may be older than a commit of a program that does not use the index.
func (rd *reader) openIndex(m *sourceMeta, g contentsTx, name string) (*layout.Entries, error) {
	if g.Items != nil && !m.Indices[name].Complete {
		return nil, fmt.Errorf("the file has no complete index %q", name)
	}
	return g.Indices.Open(name), nil
}

// IndexKeys returns the keys that have the value under the index, sorted.
func (s *Store) IndexKeys(name, value string) ([]string, error) {
	if _, err := s.indices.function(name); err != nil {
		return nil, err
	}
	if r := s.memory.shown(); r != nil && r.has(name) {
		return r.store.IndexKeys(name, value)
	}
	keys := []string{}
	built, err := s.reader.readBuilt(name, func(m *sourceMeta, g contentsTx) (err error) {
		keys, err = s.reader.keysOf(m, g, name, []string{value})
		return err
	})
	if !built {
		err = s.reader.scan(name, func(key string, _ any, has []string) {
			if slices.Contains(has, value) {
				keys = append(keys, key)
			}
		})
		slices.Sort(keys)
	}
	return keys, s.health.explained(err)
}

// ListIndexFuncValues returns the values of the index, each once.
func (s *Store) ListIndexFuncValues(name string) []string {
	values, err := s.reader.indexValuesOf(name)
	s.reader.logClosed(err) // cache.Indexer has no error to return
	return values
}

func (rd *reader) indexValuesOf(name string) ([]string, error) {
	if _, err := rd.s.indices.function(name); err != nil {
		return []string{}, nil
	}
	if r := rd.s.memory.shown(); r != nil && r.has(name) {
		return r.store.ListIndexFuncValues(name), nil
	}
	values := []string{}
	built, err := rd.readBuilt(name, func(m *sourceMeta, g contentsTx) error {
		b, err := rd.openIndex(m, g, name)
		if b == nil {
			return err
		}
		if err := b.Values(func(value string) { values = append(values, value) }); err != nil {
			return fmt.Errorf("index %s: %w: %v", name, ErrDamaged, err)
		}
		return nil
	})
	if !built {
		all := sets.New[string]()
		err = rd.scan(name, func(_ string, _ any, has []string) { all.Insert(has...) })
		values = all.UnsortedList()
	}
	return values, rd.s.health.note(err)
}

// readBuilt calls read if the file's index has all objects. If the index is just being
// built since it has no version, it waits for that: to call the function for each object
// takes no less.
func (rd *reader) readBuilt(name string, read func(*sourceMeta, contentsTx) error) (built bool, err error) {
	for waited := false; ; waited = true {
		err = rd.read(func(m *sourceMeta, _ sourceTx, g contentsTx) error {
			if built = rd.s.indices.built(m, name); !built {
				return nil
			}
			return read(m, g)
		})
		if built || err != nil || waited {
			return built, err
		}
		rd.s.builder.await(name)
	}
}

// await waits for the first attempt to build an index without a version.
func (b *builder) await(name string) {
	if tried, ok := b.tried.Load(name); ok {
		<-tried.(<-chan struct{})
	}
}

// built says whether the file's index has all objects. If it does not and is not waited
// for, readers find the objects by its function. A view whose file has no namespace index
// does the same; it knows no other function.
func (x *indices) built(m *sourceMeta, name string) bool {
	fn := x.set().fns[name]
	im := m.Indices[name]
	return fn == nil || x.s.life.viewed && (im.Complete || name != cache.NamespaceIndex) || im.Complete &&
		im.Version == x.version(name, fn)
}

// version is the version of the function of index name. Without one from the caller
// it is another one for each claim: the function may depend on settings.
func (x *indices) version(name string, fn cache.IndexFunc) string {
	if x.unversioned(name, fn) {
		return "claim " + x.number
	}
	return cmp.Or(x.versions[name], "client-go/namespace/1")
}

func (x *indices) unversioned(name string, fn cache.IndexFunc) bool {
	return x.versions[name] == "" && !isNamespaceIndex(name, fn)
}

// scan calls fn with each object and its values in the index. An object whose index
// function fails has none.
func (rd *reader) scan(name string, fn func(key string, obj any, values []string)) error {
	index := rd.s.indices.set().fns[name]
	var keys []string
	var objs []any
	err := rd.read(func(_ *sourceMeta, _ sourceTx, g contentsTx) error {
		var raws []layout.Raw
		if err := g.Items.Each(func(r layout.Raw) { raws = append(raws, r) }); err != nil {
			return err
		}
		var err error
		keys, objs, err = rd.decodeAll(raws, false)
		return err
	})
	for i := 0; i < len(objs); i++ { // goes on behind an object on which the function has ended its goroutine
		apart(func() {
			for ; i < len(objs); i++ {
				if objs[i] == nil {
					continue
				}
				if values, bad := callIndexer(name, index, objs[i]); bad == nil {
					fn(keys[i], objs[i], values)
				}
			}
		})
	}
	return err
}
