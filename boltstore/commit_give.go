package boltstore

import (
	"fmt"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/index"
)

// give stores a record, and the index entries that r has and old does not have.
func (a *applier) give(key string, r *format.Record, raw []byte, old *format.Record) error {
	if err := a.in.Items.Put(index.AppendKey(nil, key), raw); err != nil {
		return fmt.Errorf("store %q: %w", key, err)
	}
	a.m.Items.add(format.HashRecord(key, r))
	a.m.Bytes += uint64(len(raw))
	for _, iv := range r.Values {
		var had []string
		if old != nil {
			had = old.ValuesOf(iv.Name)
		}
		_, added := index.Diff(had, iv.Values)
		if err := a.entriesOf(key, iv.Name, added, true); err != nil {
			return err
		}
	}
	return nil
}

// take removes from digests and indices everything that old has and next does not have.
func (a *applier) take(key string, old *format.Record, oldRaw []byte, next *format.Record) error {
	a.m.Items.remove(format.HashRecord(key, old))
	a.m.Bytes -= min(a.m.Bytes, uint64(len(oldRaw)))
	for _, iv := range old.Values {
		var keep []string
		if next != nil {
			keep = next.ValuesOf(iv.Name)
		}
		removed, _ := index.Diff(iv.Values, keep)
		if err := a.entriesOf(key, iv.Name, removed, false); err != nil {
			return err
		}
	}
	return nil
}

// entriesOf adds or removes the entries (v, key) of one index.
func (a *applier) entriesOf(key, name string, values []string, add bool) error {
	if len(values) == 0 {
		return nil
	}
	b, err := a.in.Indices.Create(name)
	if err != nil {
		return err
	}
	im := a.m.Indices[name]
	for _, v := range values {
		a.entBuf = index.AppendEntry(a.entBuf[:0], v, key)
		h := format.HashBytes(a.entBuf)
		if add {
			im.Digest.add(h)
			err = b.Bucket.Put(a.entBuf, index.EntryData(v, key))
		} else {
			im.Digest.remove(h)
			err = b.Bucket.Delete(a.entBuf)
		}
		if err != nil {
			return fmt.Errorf("index %s of %q: %w", name, key, err)
		}
	}
	a.m.Indices[name] = im
	return nil
}
