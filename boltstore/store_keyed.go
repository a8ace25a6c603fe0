package boltstore

import (
	"errors"
	"maps"
	"slices"

	"k8s.io/client-go/tools/cache"
)

// TransactionByKey applies several writes in one commit, each at the key that it names,
// whatever key the object has. If some cannot be stored, the error says so, and the
// others are committed. A write of an unknown type does nothing.
func (s Filled) TransactionByKey(txns ...cache.ThreadSafeStoreTransaction) error {
	_, errs := s.transact(len(txns), func(i int) (c *Change, obj any, err error) {
		t := txns[i]
		switch t.Type {
		case cache.TransactionTypeAdd, cache.TransactionTypeUpdate:
			c, err = s.writer.prepareAt(cache.Updated, t.Key, t.Object)
		case cache.TransactionTypeDelete:
			c = &Change{typ: cache.Deleted, key: t.Key}
		}
		return c, t.Object, err
	})
	return errors.Join(errs...)
}

// ReplaceByKey is Replace with the objects at the keys of the map.
func (s Filled) ReplaceByKey(objs map[string]any, resourceVersion string) error {
	changes := make(map[string]*Change, len(objs))
	for key, obj := range objs {
		c, err := s.writer.prepareAt(cache.Replaced, key, obj)
		if err != nil {
			return err
		}
		changes[key] = c
	}
	return s.replaceBy(changes, resourceVersion)
}

func (s Filled) replaceBy(changes map[string]*Change, resourceVersion string) error {
	return s.write(&Batch{Changes: slices.Collect(maps.Values(changes)), ResourceVersion: resourceVersion,
		seen: &resourceVersion, replaces: true})
}
