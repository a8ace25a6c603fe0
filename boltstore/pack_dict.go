package boltstore

import (
	"bytes"
	"encoding/binary"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// dictValue is the stored form of a dictionary.
type dictValue struct {
	Dict    []byte  `msgpack:"dict"`
	Ratio   float64 `msgpack:"ratio"`
	Trained int64   `msgpack:"trained"` // unix ns
}

// dictUse is the part of meta about a dictionary.
type dictUse struct {
	Records uint64 `msgpack:"n"` // records of the generation that it packed
	// Retired is the seq up to which the journal may need the dictionary, once no record
	// needs it. Zero before that.
	Retired uint64 `msgpack:"retired"`
}

// useDict counts the records packed by a dictionary.
func (m *sourceMeta) useDict(version uint32, n int) {
	if version >= format.PackedByDict {
		u := m.Dicts[version]
		u.Records, u.Retired = uint64(max(int64(u.Records)+int64(n), 0)), 0
		m.Dicts[version] = u
	}
}

// countNoDicts sets the counts for a generation without records.
func (m *sourceMeta) countNoDicts() {
	for v, u := range m.Dicts {
		u.Records = 0
		m.Dicts[v] = u
	}
}

func (t sourceTx) hasDict(version uint32) bool {
	b := t.Root.Bucket(layout.BucketDicts)
	return b != nil && b.Get(u32(version)) != nil
}

func u32(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }

// oldDicts says whether tidyDicts has something to do.
func (t sourceTx) oldDicts(m *sourceMeta) bool {
	retire, drop := t.unusedDicts(m)
	return len(retire)+len(drop) > 0
}

// unusedDicts returns dictionaries that no record needs, except for the newest. retire
// has those to retire. drop has the keys of those that the journal does not need
// either, and of damaged versions.
func (t sourceTx) unusedDicts(m *sourceMeta) (retire []uint32, drop [][]byte) {
	b := t.Root.Bucket(layout.BucketDicts)
	if b == nil {
		return nil, nil
	}
	next, _ := t.nextDict(m)
	oldest := m.Seq + 1
	if j := t.Root.Bucket(layout.BucketJournal); j != nil {
		if k, _ := j.Cursor().First(); len(k) == 8 {
			oldest = binary.BigEndian.Uint64(k)
		}
	}
	_ = b.ForEach(func(k, _ []byte) error {
		if len(k) != 4 {
			drop = append(drop, bytes.Clone(k))
			return nil
		}
		if binary.BigEndian.Uint32(k) == next-1 {
			return nil
		}
		v := binary.BigEndian.Uint32(k)
		switch u := m.Dicts[v]; {
		case u.Records > 0:
		case oldest > m.Seq || u.Retired > 0 && u.Retired < oldest:
			drop = append(drop, bytes.Clone(k))
		case u.Retired == 0:
			retire = append(retire, v)
		}
		return nil
	})
	return retire, drop
}

// tidyDicts drops dictionaries that nothing needs. It runs at a claim, when no change
// is under way.
func (t sourceTx) tidyDicts(m *sourceMeta) error {
	retire, drop := t.unusedDicts(m)
	if len(retire)+len(drop) == 0 {
		return nil
	}
	for _, v := range retire {
		m.Dicts[v] = dictUse{Retired: m.Seq}
	}
	b := t.Root.Bucket(layout.BucketDicts)
	for _, k := range drop {
		if len(k) == 4 {
			delete(m.Dicts, binary.BigEndian.Uint32(k))
		}
		if err := b.Delete(k); err != nil {
			return err
		}
	}
	return t.putMeta(m)
}

// putDict stores a dictionary. Its version must be the bucket's next.
func (t sourceTx) putDict(version uint32, v dictValue) error {
	b, err := t.Root.CreateBucketIfNotExists(layout.BucketDicts)
	if err != nil {
		return err
	}
	if err := b.SetSequence(uint64(version)); err != nil {
		return err
	}
	return format.Put(t.DictBox(b), u32(version), v)
}

// nextDict returns the version of the next dictionary, and how many there are. The
// version is above all that meta knows: the version of a lost dictionary must not stand
// for another one.
func (t sourceTx) nextDict(m *sourceMeta) (version uint32, n int) {
	version = format.PackedByDict
	for v := range m.Dicts {
		version = max(version, v+1)
	}
	b := t.Root.Bucket(layout.BucketDicts)
	if b == nil {
		return version, 0
	}
	version = max(uint32(b.Sequence())+1, version)
	_ = b.ForEach(func(k, _ []byte) error {
		if n++; len(k) == 4 {
			version = max(version, binary.BigEndian.Uint32(k)+1) // the sequence may have been lost with its page
		}
		return nil
	})
	return version, n
}

// beginDicts makes next the version of the first dictionary.
func (t sourceTx) beginDicts(next uint32) error {
	b, err := t.Root.CreateBucketIfNotExists(layout.BucketDicts)
	if err != nil {
		return err
	}
	return b.SetSequence(uint64(next - 1))
}
