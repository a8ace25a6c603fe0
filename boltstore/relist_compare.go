package boltstore

import (
	"bytes"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
	"github.com/kubewake/kubewake/internal/listing"
)

// ByMetadata says whether metadata is enough to recognise an unchanged object. It is not
// enough for a first list, after a change of type or transform, or with a key function of
// the program's own. It is also not enough where equal versions need not mean equal
// content: in a new timeline, in another served form, or in a damaged source.
func (r *Relist) ByMetadata() bool {
	return !r.first && !r.all && !r.content && r.s.coder.metaKeys
}

// Compare says how the file's records compare with the listed objects, in their order.
// It may run while another goroutine calls Page and Keep.
func (r *Relist) Compare(listed []listing.Object) ([]listing.Match, error) {
	found := make([]listing.Match, len(listed))
	err := r.s.db.h.view(func(tx *bolt.Tx) error {
		g, err := r.current(tx)
		if err != nil || g.Items == nil {
			return err
		}
		unstored := r.s.mayNote()
		for i, l := range listed {
			if found[i], err = match(r.s.coder.owner, g, unstored, l); err != nil {
				r.damage.meet(err)
			}
		}
		return nil
	})
	if err == nil {
		err = r.damage.err()
	}
	if err != nil {
		return nil, fmt.Errorf("boltstore: relist of %s: %w", r.s.name, err)
	}
	return found, nil
}

// match compares the record of a listed object. unstored says whether there may be
// notes of unstored objects. The error is damage to the record.
func match(o format.Owner, g contentsTx, unstored bool, l listing.Object) (listing.Match, error) {
	if l.Name == "" || l.UID == "" || l.ResourceVersion == "" {
		return listing.MatchAbsent, nil
	}
	k := index.AppendKey(nil, l.Key())
	v, there := g.Items.Find(k)
	if !there {
		return listing.MatchAbsent, nil
	}
	_, old, err := o.ParseRecord(k, v.Open())
	switch {
	case err != nil:
		return listing.MatchAbsent, err
	case unstored && g.notes.unstored(k):
		return listing.MatchDiffers, nil
	case old.UID == l.UID && old.ResourceVersion == l.ResourceVersion:
		return listing.MatchSame, nil
	}
	return listing.MatchDiffers, nil
}

// sameButKind says whether a listed typed object equals that of a record, except that one
// of the two lacks apiVersion and kind. client-go's clients show these for custom
// resources in a list but not in a watch. They are the source's in any case.
func (cd *coder) sameButKind(c *Change, old *format.Record) (same bool) {
	listed, ok := c.obj.(runtime.Object)
	if !ok || cd.form != FormTyped || c.rv != old.ResourceVersion || c.uid != old.UID || old.Codec != cd.codec.ID() {
		return false
	}
	err := faults.Contain(func() error {
		obj, err := cd.decode(old.Payload)
		if err != nil {
			return err
		}
		kind := listed.GetObjectKind().GroupVersionKind()
		if kind.Empty() == obj.GetObjectKind().GroupVersionKind().Empty() {
			return nil
		}
		obj.GetObjectKind().SetGroupVersionKind(kind)
		whole, err := cd.encode(obj)
		same = err == nil && bytes.Equal(whole[format.HeadRoom:], c.payload)
		return err
	})
	return same && err == nil
}

// Keep is Page for objects whose records stay as they are: Compare found no difference,
// or the server does not return these objects any more. After an error
// the relist is of no more use.
func (r *Relist) Keep(listed []listing.Object) error {
	r.Objects += len(listed)
	for _, l := range listed {
		r.seen.add(index.AppendKey(nil, l.Key()))
	}
	return nil
}

// current is the contents to compare with.
func (r *Relist) current(tx *bolt.Tx) (contentsTx, error) {
	src, err := r.source(tx)
	if err != nil || r.startsOver() {
		return contentsTx{}, err
	}
	return src.contents(), nil
}

// lacksRecords says whether the records are not those that meta counts. A damaged record
// counts as lost: its key may be another object's, and then lists would not show that its
// own object is gone.
func (dm *knownDamage) lacksRecords() (lacks bool, err error) {
	err = dm.r.s.view(func(m *sourceMeta, t sourceTx) error {
		var is digest
		err := t.contents().Items.Each(func(rw layout.Raw) {
			if key, r, err := dm.r.s.coder.owner.ParseRecord(rw.Key, rw.Open()); err == nil {
				is.add(format.HashRecord(key, r))
			}
		})
		lacks = is != m.Items
		return err
	})
	if err != nil {
		err = fmt.Errorf("boltstore: relist of %s: %w", dm.r.s.name, err)
	}
	return lacks, err
}

// compare looks up each item in the file. It removes the change of an item that is the
// same there.
func (r *Relist) compare(items []listedItem) error {
	maybe, err := r.compareVersions(items)
	if err != nil {
		return err
	}
	for _, m := range maybe {
		it := &items[m.i]
		if it.err != nil {
			continue
		}
		if err := r.s.writer.encode(it.c); err != nil {
			continue // r.encode meets the error again and reports it
		}
		if m.old.Payload, err = plain(m.old, nil); err != nil {
			continue
		}
		if sameContent(it.c, m.old, r.s.coder.codec.ID()) || !r.all && r.s.coder.sameButKind(it.c, m.old) {
			// It is uncertain what handlers know of an unstored object.
			if it.c.quiet = !it.noted; !it.noted && len(it.c.failed) == 0 && sameValues(it.c.values, m.old) {
				it.c, it.err = nil, nil
			}
		}
	}
	return nil
}

// candidate is an item, by its index, whose content must be compared with its record.
type candidate struct {
	i   int
	old *format.Record
}

// compareVersions is the part of compare that needs the file. It removes the changes of
// items that are the same by their versions, and returns those that may still be the same.
func (r *Relist) compareVersions(items []listedItem) (maybe []candidate, err error) {
	err = r.s.db.h.view(func(tx *bolt.Tx) error {
		g, err := r.current(tx)
		if err != nil || g.Items == nil {
			return err
		}
		unstored := r.s.mayNote()
		for i := range items {
			it := &items[i]
			it.again = r.seen.has(it.k)
			v, there := g.Items.Find(it.k)
			it.size = len(v.Stored)
			if !there || it.again {
				continue
			}
			_, old, err := r.s.coder.owner.ParseRecord(it.k, v.Open())
			switch {
			case err != nil:
				r.damage.meet(err)
			case unstored && g.notes.unstored(it.k):
				it.noted = true
				fallthrough
			case r.content || r.all || it.c.rv == "":
				old.Payload = bytes.Clone(old.Payload)
				maybe = append(maybe, candidate{i, old})
			case it.c.uid == old.UID && it.c.rv == old.ResourceVersion:
				it.c, it.err = nil, nil
			}
		}
		return nil
	})
	return maybe, err
}

func sameContent(c *Change, old *format.Record, codec byte) bool {
	return c.rv == old.ResourceVersion && c.uid == old.UID && codec == old.Codec && bytes.Equal(c.payload, old.Payload)
}

// sameValues says whether the record has those values. Other indices do not count.
func sameValues(values []format.IndexValues, old *format.Record) bool {
	return !slices.ContainsFunc(values, func(iv format.IndexValues) bool {
		return !slices.Equal(iv.Values, old.ValuesOf(iv.Name))
	})
}
