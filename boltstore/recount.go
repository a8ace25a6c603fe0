package boltstore

import (
	"bytes"
	"cmp"
	"fmt"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// Mend removes damaged objects from a source that the program fills itself, and keeps the
// rest with its times. Err is nil afterwards. Mend does nothing if Err is nil. It also
// does nothing to an informer's source, which a relist mends. Replace mends, too.
func (s Filled) Mend() error {
	if s.Err() == nil || !s.FilledByProgram() {
		return nil
	}
	return s.write(&Batch{mends: true})
}

// changes returns the batch's changes. A Replace also deletes the objects at all other
// keys.
func (w *work) changes(a *applier) ([]*Change, error) {
	if !w.b.replaces {
		return w.b.Changes, nil
	}
	others, err := a.others(w.b.Changes)
	return append(others, w.b.Changes...), err
}

// others deletes the objects at all keys but those of the changes.
func (a *applier) others(changes []*Change) (gone []*Change, err error) {
	stay := map[string]bool{}
	for _, c := range changes {
		stay[c.key] = true
	}
	err = a.in.Items.Each(func(r layout.Raw) {
		if key, err := keyOf(r); err == nil && !stay[key] {
			gone = append(gone, &Change{typ: cache.Deleted, key: key})
		}
	})
	return gone, err
}

// mend is recount for a source that no server will list. Objects that cannot be decoded go,
// too.
func (a *applier) mend() error {
	lost, err := a.recount(func(key string, r *format.Record) error {
		_, err := a.s.reader.decode(key, r, false)
		return err
	})
	if lost > 0 {
		a.s.db.log().Info("Warning: damage has taken some of the program's own objects; the others stay",
			"source", a.s.name.String(), "lost", lost, "kept", a.m.Items.Count)
	}
	return err
}

// recount removes what does not verify, and makes counts, digests and indices those of the
// records that stay. It does so after damage: what a record that cannot be read has added to
// them cannot be subtracted. It returns how many records it has removed. sound says which
// records stay; nil means all that verify.
func (a *applier) recount(sound func(key string, r *format.Record) error) (lost int, err error) {
	nameless := noted{Nameless: a.m.Noted.Nameless, Why: a.m.Noted.Why}
	a.m.empty()
	a.m.Noted = nameless
	var bad [][]byte
	want := map[string]digest{}
	err = a.in.Items.Each(func(rw layout.Raw) {
		raw := rw.Open()
		key, r, err := a.s.coder.owner.ParseRecord(rw.Key, raw)
		if err == nil && sound != nil {
			err = sound(key, r)
		}
		if err != nil {
			bad = append(bad, bytes.Clone(rw.Key))
			return
		}
		a.m.Items.add(format.HashRecord(key, r))
		a.m.Bytes += uint64(len(raw))
		for _, iv := range r.Values {
			d := want[iv.Name]
			for _, v := range iv.Values {
				d.add(format.HashBytes(index.AppendEntry(nil, v, key)))
			}
			want[iv.Name] = d
		}
	})
	for _, k := range bad {
		if err == nil {
			err = a.in.Items.Delete(k)
		}
	}
	if err == nil {
		err = a.recountNotes()
	}
	if err == nil {
		err = a.recountIndices(want)
	}
	if err != nil {
		return 0, fmt.Errorf("repair %s: %w", a.s.name, err)
	}
	return len(bad), nil
}

// recountIndices makes indices anew whose entries are not those that the records list.
func (a *applier) recountIndices(want map[string]digest) error {
	anew := map[string]bool{}
	for name := range a.m.Indices {
		if _, ok := want[name]; !ok {
			want[name] = digest{} // it may have entries that nothing lists
		}
	}
	for name, d := range want {
		var is digest
		broken := false
		err := a.in.Indices.Open(name).Each(func(v, key string, err error) {
			broken = broken || err != nil
			is.add(format.HashBytes(index.AppendEntry(nil, v, key)))
		})
		if err == nil && !broken && is == d {
			im := a.m.Indices[name]
			im.Digest = d
			a.m.Indices[name] = im
			continue
		}
		anew[name] = true
		if err := a.in.Indices.Drop(name); err != nil {
			return err
		}
	}
	if len(anew) == 0 {
		return nil
	}
	var failed error
	err := a.in.Items.Each(func(rw layout.Raw) {
		key, r, err := a.s.coder.owner.ParseRecord(rw.Key, rw.Open())
		for i := 0; err == nil && i < len(r.Values); i++ {
			if iv := r.Values[i]; anew[iv.Name] {
				err = a.entriesOf(key, iv.Name, iv.Values, true)
			}
		}
		failed = cmp.Or(failed, err)
	})
	return cmp.Or(failed, err)
}

// recountNotes removes notes that cannot be read.
func (a *applier) recountNotes() error {
	var bad [][]byte
	err := a.in.Notes().Each(func(k, _ []byte) {
		n := a.in.notes.get(k)
		if n.damage != nil {
			bad = append(bad, bytes.Clone(k))
			return
		}
		a.m.Noted.add(n, 1)
	})
	for _, k := range bad {
		if err == nil {
			err = a.in.Notes().Delete(k)
		}
	}
	return err
}
