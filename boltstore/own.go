package boltstore

import (
	"bytes"
	"fmt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"

	"github.com/kubewake/kubewake/boltstore/internal/format"

	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
)

// A program's own write lies over what the server has shown. Readers see the
// program's object. Handlers see the server's line of versions only.
//
// A key that the program has written keeps its base in the bucket own of the
// generation: the record that the server showed last, or one zero byte if it showed
// none. Changes from the server and relists are compared with the base, replays show
// it, and entries say how the object differs from it. The base goes once the server's
// state has reached the program's.
//
// An own write before the first list is for readers, too. It lies in a generation
// beside the one that the list stages. A source without a queue, which its program
// fills, keeps no bases: there Replace and Bookmark state the resume point. Meta
// counts bases by a digest, and dictionaries that bases are packed by are kept.

// noBase stands for the base of a key that the server has not shown. Such a key
// always has a record of the program's.
var noBase = []byte{0}

// shown is the record that the server showed last at k, nil if it showed none.
func (g genTx) shown(k []byte) []byte {
	if v := g.Own.Get(k); v != nil {
		if bytes.Equal(v, noBase) {
			return nil
		}
		return v
	}
	return g.Items.Get(k)
}

// ownHash is what the digest of the bases has of one. r is nil where the server
// has shown nothing.
func ownHash(k []byte, key string, r *format.Record) uint64 {
	if r == nil {
		return format.HashEntry(append(bytes.Clone(layout.BucketOwn), k...))
	}
	return format.HashRecord(key, r)
}

// setBase makes r the base of the key at k, nil if the server shows nothing.
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
		a.m.useDict(r.Packed, 1)
	}
	a.m.Own.add(ownHash(k, key, r))
	if err := a.to.Own.Put(bytes.Clone(k), v); err != nil {
		return fmt.Errorf("store the base of %q: %w", key, err)
	}
	return nil
}

// dropBase forgets the base of the key at k, if it has one.
func (a *applier) dropBase(k []byte, key string) error {
	v := a.to.Own.Get(k)
	if v == nil {
		return nil
	}
	var r *format.Record
	if !bytes.Equal(v, noBase) {
		var err error
		if _, r, err = format.ParseRecord(k, v); err != nil {
			// Its digest cannot be taken back: the source must be read anew.
			a.s.damaged(err)
			a.m.Degraded = err.Error()
			return a.to.Own.Delete(k)
		}
		a.m.useDict(r.Packed, -1)
	}
	a.m.Own.remove(ownHash(k, key, r))
	return a.to.Own.Delete(k)
}

// was is what there is of a key before a change.
type was struct {
	k []byte
	// here: it is in the generation that is written.
	here bool
	// item is what readers see, told what the server showed last. They are the
	// same unless the key is owned, which the program has written.
	item, told       *format.Record
	itemRaw, toldRaw []byte
	owned            bool
	damaged          bool // told cannot be read
}

// look finds what there is at k. In a stage an earlier page may have had the
// key.
func (a *applier) look(k []byte) (w was) {
	w.k, w.here = k, a.from.Bucket == a.to.Bucket || a.to.Items.Get(k) != nil || a.to.Own.Get(k) != nil
	side := a.from
	if w.here {
		side = a.to
	}
	parse := func(raw []byte) ([]byte, *format.Record, bool) {
		if raw == nil {
			return nil, nil, false
		}
		_, r, err := format.ParseRecord(k, raw)
		if err == nil {
			return raw, r, false
		}
		if w.here {
			// Its index entries and digest cannot be taken back: the source
			// must be read anew, and until then says so.
			a.s.damaged(err)
			a.m.Degraded = err.Error()
		}
		return nil, nil, true
	}
	w.itemRaw, w.item, w.damaged = parse(side.Items.Get(k))
	w.toldRaw, w.told = w.itemRaw, w.item
	if base := side.Own.Get(k); base != nil {
		w.owned, w.damaged, w.toldRaw, w.told = true, false, nil, nil
		if !bytes.Equal(base, noBase) {
			w.toldRaw, w.told, w.damaged = parse(base)
		}
	}
	return w
}

// ahead says whether the program's object at an owned key is newer than the
// server's change: then readers keep it, until the server has come so far.
func (a *applier) ahead(c *Change, w was) bool {
	if !w.owned || w.item == nil || a.anew {
		return false
	}
	asOf := c.rv
	if a.asOf != "" {
		asOf = a.asOf
	}
	return newer(w.item.ResourceVersion, asOf)
}

// newer says whether version a is known to be later than b.
func newer(a, b string) bool {
	if a == "" || b == "" {
		return false
	}
	cmp, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && cmp > 0
}

// writeOwn applies a change that the program made to a source that has been
// read from the server. An object that is older than the one that is there is
// not stored: what readers see does not step back.
func (a *applier) writeOwn(c *Change, w was, before *note) error {
	if c.typ == cache.Deleted {
		switch {
		case w.item == nil:
			return nil // one that is damaged stays until a list says what became of it
		case w.owned && (w.told == nil || a.hidden) && !w.damaged: // its base is none
			if err := a.dropBase(w.k, c.key); err != nil {
				return err
			}
		case !w.owned:
			if err := a.setBase(w.k, c.key, w.item, w.itemRaw); err != nil {
				return err
			}
		}
		if err := a.settleNote(c, w, before); err != nil {
			return err
		}
		return a.takeItem(c.key, w)
	}
	if w.item != nil && newer(w.item.ResourceVersion, c.rv) {
		a.s.stale.Add(1)
		return nil
	}
	switch {
	case w.item != nil && a.unchanged(c, w.item):
		return nil
	case w.owned && w.told != nil && !a.hidden && a.unchanged(c, w.told): // as it was
		if err := a.dropBase(w.k, c.key); err != nil {
			return err
		}
	case !w.owned && !w.damaged:
		if err := a.setBase(w.k, c.key, w.item, w.itemRaw); err != nil {
			return err
		}
	}
	next, raw, err := a.recordOf(c, w)
	if err != nil {
		return err
	}
	if err := a.settleNote(c, w, before); err != nil {
		return err
	}
	a.s.hot.put(c.key, next, c.obj)
	if err := a.giveItem(c.key, w, next, raw); err != nil || !w.damaged || w.owned {
		return err
	}
	return a.noteLost(w.k, ErrDamaged) // what the server had shown cannot be a base
}

// unchanged says whether c would store what r says.
func (a *applier) unchanged(c *Change, r *format.Record) bool {
	if c.typ == cache.Deleted || c.rv != r.ResourceVersion || c.uid != r.UID || r.Codec != a.s.codec.ID() {
		return false
	}
	is, packed, size := c.payload, uint32(format.NotPacked), len(c.payload)
	if c.by != nil {
		packed, size = c.by.Version, c.size
	}
	switch {
	case size != r.UnpackedSize():
		return false
	case packed == r.Packed && bytes.Equal(is, r.Payload):
		return true
	}
	was, err := a.s.plain(r, nil)
	if err == nil && c.by != nil {
		is, err = c.by.Unpack(c.payload, c.size, nil)
	}
	return err == nil && bytes.Equal(is, was)
}
