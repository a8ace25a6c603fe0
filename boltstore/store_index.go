package boltstore

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// GetIndexers returns a copy of the indexers.
func (s *Store) GetIndexers() cache.Indexers { return maps.Clone(s.indexing().indexSet().fns) }

func (s indexing) indexer(name string) (cache.IndexFunc, error) {
	if f := s.indexSet().fns[name]; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("Index with name %s does not exist", name) //nolint:staticcheck // client-go's exact text is relied on
}

// values computes the index values of a change's object. An index whose function fails
// or panics has no values; the change notes the failure.
func (s indexing) values(c *Change) {
	c.values, c.failed, c.failedWhy = nil, nil, ""
	obj, undecoded := s.objectOf(c)
	for _, name := range slices.Sorted(maps.Keys(c.set.fns)) {
		var values []string
		err := undecoded
		if err == nil {
			values, err = callIndexer(name, c.set.fns[name], obj)
		}
		if err != nil {
			c.failed, c.failedWhy = append(c.failed, name), short(err)
			s.unindexed(err, c.key)
		}
		c.values = append(c.values, format.IndexValues{Name: name, Values: values})
	}
}

// unindexed logs failures of index functions: the first, the second, the fourth, and so
// on.
func (s indexing) unindexed(err error, key string) {
	if n := s.indexFailures.Add(1); n&(n-1) == 0 {
		s.db.log().Error(err, "An object is without values in an index until its function succeeds", "source", s.source.String(), "key", key, "failures", n)
	}
}

func callIndexer(name string, fn cache.IndexFunc, obj any) (values []string, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("index %s: its function panicked: %v", name, r)
		}
	}()
	if values, err = fn(obj); err != nil {
		return nil, fmt.Errorf("index %s: %w", name, err)
	}
	return sets.List(sets.New(values...)), nil
}

// Index returns the objects that share a value of the index with obj.
func (s *Store) Index(name string, obj any) ([]any, error) {
	fn, err := s.indexing().indexer(name)
	if err != nil {
		return nil, err
	}
	values, err := fn(obj)
	if err != nil {
		return nil, err
	}
	return s.indexing().byIndex(name, values)
}

// ByIndex returns the objects that have the value under the index.
func (s *Store) ByIndex(name, value string) ([]any, error) {
	if _, err := s.indexing().indexer(name); err != nil {
		return nil, err
	}
	return s.indexing().byIndex(name, []string{value})
}

func (s indexing) byIndex(name string, values []string) ([]any, error) {
	objs := []any{}
	err := s.read(func(_ *sourceMeta, _ sourceTx, g genTx) error {
		keys, err := g.keys(name, values)
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
		_, decoded, err := s.reading().decodeListed(raws, true, name, values)
		objs = slices.DeleteFunc(decoded, func(o any) bool { return o == nil })
		return errors.Join(missing, err)
	})
	if s.note(err) != nil {
		return nil, fmt.Errorf("boltstore: %s: %w", s.source, err)
	}
	return objs, nil
}

// keys returns the keys that have one of the values, each once and sorted.
func (g genTx) keys(name string, values []string) ([]string, error) {
	b := g.Indices.Open(name)
	if b == nil {
		return []string{}, nil
	}
	found := sets.New[string]()
	for _, value := range values {
		if err := b.Keys(value, func(key string) { found.Insert(key) }); err != nil {
			return nil, fmt.Errorf("index %s: %w: %v", name, ErrDamaged, err)
		}
	}
	return sets.List(found), nil
}

// IndexKeys returns the keys that have the value under the index, sorted.
func (s *Store) IndexKeys(name, value string) ([]string, error) {
	if _, err := s.indexing().indexer(name); err != nil {
		return nil, err
	}
	var keys []string
	err := s.read(func(_ *sourceMeta, _ sourceTx, g genTx) (err error) {
		keys, err = g.keys(name, []string{value})
		return err
	})
	return keys, s.note(err)
}

// ListIndexFuncValues returns the values of the index, each once.
func (s *Store) ListIndexFuncValues(name string) []string {
	values := []string{}
	err := s.read(func(_ *sourceMeta, _ sourceTx, g genTx) error {
		b := g.Indices.Open(name)
		if b == nil {
			return nil
		}
		if err := b.Values(func(value string) { values = append(values, value) }); err != nil {
			return fmt.Errorf("index %s: %w: %v", name, ErrDamaged, err)
		}
		return nil
	})
	s.reading().logClosed(s.note(err)) // cache.Indexer has no error to return
	return values
}
