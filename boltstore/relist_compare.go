package boltstore

import (
	"fmt"

	"github.com/kubewake/kubewake/boltstore/internal/format"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/index"
)

// Listed is what a list says of an object in its metadata.
type Listed struct{ Namespace, Name, UID, ResourceVersion string }

// key is that of cache.MetaNamespaceKeyFunc.
func (l Listed) key() string {
	if l.Namespace == "" {
		return l.Name
	}
	return l.Namespace + "/" + l.Name
}

// Match is what the file has of an object that a list shows.
type Match int8

// What Compare may find.
const (
	MatchAbsent  Match = iota // no record, or none that can be used
	MatchDiffers              // a record of another version or UID, or one that the program has written
	MatchSame                 // of the same version and UID
)

// ByMetadata says whether metadata is enough to recognise an object that has
// not changed. It is not where the source has no objects yet, where type or
// transform have changed, where equal versions need not mean equal content (a
// new history, another served form), or where the source has a key function of its own.
func (r *Relist) ByMetadata() bool {
	return !r.first && !r.all && !r.content && r.s.metaKeys
}

// Compare says what the file has of the objects. It may be called while
// another goroutine calls Page and Keep.
func (r *Relist) Compare(listed []Listed) ([]Match, error) {
	found := make([]Match, len(listed))
	err := r.s.db.h.view(func(tx *bolt.Tx) error {
		g, err := r.current(tx)
		if err != nil || g.Items == nil {
			return err
		}
		unstored := r.s.mayNote()
		for i, l := range listed {
			found[i] = MatchAbsent
			if l.Name == "" || l.UID == "" || l.ResourceVersion == "" {
				continue
			}
			k := index.AppendKey(nil, l.key())
			v, _ := g.Items.Find(k)
			base, owned := g.Own.Find(k)
			if v = shown(v, base); v.In == nil || v.Stored == nil {
				continue
			}
			_, old, err := format.ParseRecord(k, v.Open())
			if err != nil || r.s.usable(old) != nil {
				continue
			}
			found[i] = MatchDiffers
			if unstored && g.notes.unstored(k) {
				continue
			}
			if old.UID == l.UID && old.ResourceVersion == l.ResourceVersion && !owned {
				found[i] = MatchSame
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("boltstore: relist of %s: %w", r.s.source, err)
	}
	return found, nil
}

// Keep is Page for objects whose records stay as they are: those that Compare
// has found to be the same, or such as differ and cannot be had any more. After
// an error the relist must be aborted.
func (r *Relist) Keep(listed []Listed) error {
	items := make([]item, 0, len(listed))
	r.Objects += len(listed)
	for _, l := range listed {
		it := item{key: l.key()}
		it.k = index.AppendKey(nil, it.key)
		if r.hasSeen(it.k) {
			continue // what an earlier page showed is no older
		}
		r.seen[r.hash(it.k)] = struct{}{}
		items = append(items, it)
	}
	if r.stage == nil {
		return r.failed
	}
	if err := r.sizes(items); err != nil {
		return err
	}
	_, err := r.take(items)
	return err
}

// sizes notes how large the records are.
func (r *Relist) sizes(items []item) error {
	return r.s.db.h.view(func(tx *bolt.Tx) error {
		g, err := r.current(tx)
		if err != nil || g.Items == nil {
			return err
		}
		for i := range items {
			v, _ := g.Items.Find(items[i].k)
			base, _ := g.Own.Find(items[i].k)
			items[i].size = len(v.Stored) + len(base.Stored)
		}
		return nil
	})
}
