package boltstore

import (
	"errors"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/objmeta"
)

// refuse notes that a listed object could not be transformed, or has no key. A transform or
// a key function that succeeded before may have given it another key, which no page shows.
// If err is nil, the object can be stored, perhaps after an earlier page showed it.
func (sk *seenKeys) refuse(obj any, err error) {
	m := objmeta.Of(obj)
	if m == nil || m.GetUID() == "" || err == nil && sk.refused == nil {
		return
	}
	uid := sk.hash([]byte(m.GetUID()))
	if err == nil {
		delete(sk.refused, uid)
		return
	}
	if sk.refused == nil {
		sk.refused = map[uint64]struct{}{}
	}
	sk.refused[uid] = struct{}{}
}

// unseen is the change for a key that no page has shown: its object is gone, or was refused
// under another key.
func (sw *sweeper) unseen(it listedItem, resourceVersion string) *Change {
	c := &Change{typ: cache.Deleted, key: it.key, rv: resourceVersion}
	if _, refused := sw.r.seen.refused[sw.r.seen.hash([]byte(it.uid))]; refused && it.uid != "" {
		c = c.unstoredFor(errors.New(sw.r.unstored.why))
		c.hide = sw.r.all
	}
	return c
}
