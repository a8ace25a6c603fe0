package boltstore

import (
	"bytes"
	"fmt"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/internal/versions"
)

// A program's own write hides the server's object from readers: they see the program's
// object. Handlers see only the server's versions.
//
// A key with an own write has its base in the bucket own of the generation. The base is
// the record that the server showed last, or one zero byte if it showed none. Changes
// from the server and relists are compared with the base, replays show it, and entries
// give it as the previous object. The base goes once the server's state has reached the
// own write.
//
// An own write before the first list is in a generation beside the one that the list
// stages. Only readers see it, too. A source that its program fills, without a queue,
// keeps no bases: there Replace and Bookmark state the resume point. Meta has a digest of
// the bases.

// noBase is the base of a key that the server has not shown. Such a key always has a
// record, which is an own write.
var noBase = []byte{0}

// shown is the record that the server showed last at k, nil if it showed none.
//
// shown does not verify the record.
func (g genTx) shown(k []byte) []byte {
	if v := g.Own.Get(k); v != nil {
		if bytes.Equal(v, noBase) {
			return nil
		}
		return v
	}
	return g.Items.Get(k)
}

// ownHash is a base's part in the digest of the bases. r is nil if the server has shown
// nothing.
func ownHash(k []byte, key string, r *format.Record) uint64 {
	if r == nil {
		return format.HashBytes(append(bytes.Clone(layout.BucketOwn), k...))
	}
	return format.HashRecord(key, r)
}

// setBase makes r the base of the key at k. nil says that the server shows nothing.
func (a *applier) setBase(k []byte, key string, r *format.Record, raw []byte) error {
	if err := a.dropBase(k, key); err != nil {
		return err
	}
	if err := a.to.CreateOwn(); err != nil {
		return err
	}
	v := noBase
	if r != nil {
		v = bytes.Clone(raw)
	}
	a.m.Own.add(ownHash(k, key, r))
	if err := a.to.Own.Put(bytes.Clone(k), v); err != nil {
		return fmt.Errorf("store the base of %q: %w", key, err)
	}
	return nil
}

// dropBase removes the base of the key at k, if it has one.
func (a *applier) dropBase(k []byte, key string) error {
	v := a.to.Own.Get(k)
	if v == nil {
		return nil
	}
	var r *format.Record
	if !bytes.Equal(v, noBase) {
		var err error
		if _, r, err = a.m.owner().ParseRecord(k, v); err != nil {
			// Its digest cannot be subtracted, so the source must be listed.
			a.s.damaged(err)
			a.m.Degraded = err.Error()
			return a.to.Own.Delete(k)
		}
	}
	a.m.Own.remove(ownHash(k, key, r))
	return a.to.Own.Delete(k)
}

// keyState is the state in which a change finds its key.
type keyState struct {
	k []byte
	// here: the key is in the generation that is written.
	here bool
	// item is the record that readers see, base the one that the server showed last. They
	// differ only if the key is owned, which means that it has an own write.
	item, base       *format.Record
	itemRaw, baseRaw []byte
	owned            bool
	damaged          bool // base cannot be read
}

// look finds the state of the key at k. In a stage an earlier page may have written it.
func (a *applier) look(k []byte) (was keyState) {
	was.k, was.here = k, a.from.Bucket == a.to.Bucket || a.to.Items.Get(k) != nil || a.to.Own.Get(k) != nil
	side := a.from
	if was.here {
		side = a.to
	}
	parse := func(raw []byte) ([]byte, *format.Record, bool) {
		if raw == nil {
			return nil, nil, false
		}
		_, r, err := a.s.owner.ParseRecord(k, raw)
		if err == nil {
			return raw, r, false
		}
		if was.here {
			// Its index entries and digest cannot be subtracted. The source is degraded
			// until it is listed.
			a.s.damaged(err)
			a.m.Degraded = err.Error()
		}
		return nil, nil, true
	}
	was.itemRaw, was.item, was.damaged = parse(side.Items.Get(k))
	was.baseRaw, was.base = was.itemRaw, was.item
	if raw := side.Own.Get(k); raw != nil {
		was.owned, was.damaged, was.baseRaw, was.base = true, false, nil, nil
		if !bytes.Equal(raw, noBase) {
			was.baseRaw, was.base, was.damaged = parse(raw)
		}
	}
	return was
}

// ownIsNewer says whether the own write at a key is newer than the server's change. Readers
// then keep it until the server has reached its version.
func (a *applier) ownIsNewer(c *Change, was keyState) bool {
	if !was.owned || was.item == nil || a.dropsOwn {
		return false
	}
	asOf := c.rv
	if a.asOf != "" {
		asOf = a.asOf
	}
	return versions.Newer(was.item.ResourceVersion, asOf)
}

// late says whether the server has deleted the object of an own write meanwhile. The file
// has every change up to the resume point. An object of that version or an older one that
// the file does not have is gone, unless it could not be stored.
func (a *applier) late(c *Change, was keyState, before *note) bool {
	m := a.m
	switch {
	case was.item != nil, was.owned, was.damaged, before != nil && before.Unstored:
		return false
	case !a.s.expectsProducer():
		return false // the program has taken over from an informer
	case m.Noted.Nameless > 0, m.Restored, m.Degraded != "", a.s.Err() != nil:
		return false // the server may have it
	case m.Stands, a.s.stands.Load(), !m.Moved && (m.Listed == "" || m.Listed == m.ResourceVersion):
		return false // an unchanged version shows nothing
	}
	cmp, err := resourceversion.CompareResourceVersion(c.rv, m.ResourceVersion)
	return err == nil && cmp <= 0
}

// writeOwn applies an own write to a source that has been listed. It does not store an
// object older than the one that is there, or than its delete, so that readers see no step
// back. For the same reason the delete of an older object does not remove another one.
func (a *applier) writeOwn(c *Change, was keyState, before *note) error {
	if c.typ == cache.Deleted {
		switch {
		case was.item == nil:
			return nil // a damaged record stays until a list shows the object
		case c.uid != "" && was.item.UID != "" && c.uid != was.item.UID && versions.Newer(was.item.ResourceVersion, c.rv):
			a.s.stale.Add(1) // the deleted object is an older one
			return nil
		case was.owned && (was.base == nil || a.hidden) && !was.damaged: // its base says that the server has nothing
			if err := a.dropBase(was.k, c.key); err != nil {
				return err
			}
		case !was.owned:
			if err := a.setBase(was.k, c.key, was.item, was.itemRaw); err != nil {
				return err
			}
		}
		if err := a.settleNote(c, was, before); err != nil {
			return err
		}
		return a.takeItem(c.key, was)
	}
	if was.item != nil && versions.Newer(was.item.ResourceVersion, c.rv) || a.late(c, was, before) {
		a.s.stale.Add(1)
		return nil
	}
	switch {
	case was.item != nil && a.unchanged(c, was.item):
		return nil
	case was.owned && was.base != nil && !a.hidden && a.unchanged(c, was.base): // back at the server's state
		if err := a.dropBase(was.k, c.key); err != nil {
			return err
		}
	case !was.owned && !was.damaged:
		if err := a.setBase(was.k, c.key, was.item, was.itemRaw); err != nil {
			return err
		}
	}
	next, raw, err := a.recordOf(c, was)
	if err != nil {
		return err
	}
	if err := a.settleNote(c, was, before); err != nil {
		return err
	}
	a.s.keep(c.key, next, c.obj)
	a.show(itemChange{key: c.key, next: next, raw: raw, obj: c.obj})
	if err := a.giveItem(c.key, was, next, raw); err != nil || !was.damaged || was.owned {
		return err
	}
	return a.noteLost(was.k, ErrDamaged) // the server's record is damaged and cannot be a base
}

// unchanged says whether c would store the same as r.
func (a *applier) unchanged(c *Change, r *format.Record) bool {
	if c.typ == cache.Deleted || c.rv != r.ResourceVersion || c.uid != r.UID || r.Codec != a.s.codec.ID() {
		return false
	}
	var is format.Record
	c.fill(&is)
	switch {
	case is.UnpackedSize() != r.UnpackedSize():
		return false
	case is.Packed == r.Packed && bytes.Equal(is.Payload, r.Payload):
		return true
	}
	was, err := plain(r, nil)
	if err != nil {
		return false
	}
	next, err := plain(&is, nil)
	return err == nil && bytes.Equal(next, was)
}
