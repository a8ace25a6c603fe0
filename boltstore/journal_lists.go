package boltstore

import (
	"encoding/binary"
	"slices"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/internal/versions"
)

// A watch brings changes in the order of their versions, so a version has a place in the
// journal. A list brings differences in no such order, and deletes among them have no
// version. List marks say where these differences are, and which version the state has
// after them.

// listMark is a list in the journal. The entries above From, up to Seq, are its
// differences. After Seq the state is that of Version. Same says that the state before
// the list was of that version, too: the list has brought objects that could not be
// stored before, or other content. Open says that the list goes on, and that its version is
// not the state's yet; Bytes is what it has journaled since From.
type listMark struct {
	From    uint64 `msgpack:"from"`
	Seq     uint64 `msgpack:"seq"`
	Version string `msgpack:"version"`
	Same    bool   `msgpack:"same,omitempty"`
	Open    bool   `msgpack:"open,omitempty"`
	Bytes   uint64 `msgpack:"bytes,omitempty"`
}

// mostMarks bounds meta. Versions older than the oldest mark have no place.
const mostMarks = 16

// mostOpen bounds how much of the journal readers go back to the state before a list that has
// not ended. After more, the series begins again with what the list has stored.
const mostOpen = 1 << 20

// markList notes a list of a version, whose differences follow the state was. With
// restart, earlier records mean nothing from then on. open says that more of the list's
// differences follow; the version is then that of before.
func (m *sourceMeta) markList(was *sourceMeta, version string, restart, open bool, now int64) {
	same := version == was.ResourceVersion && was.listed()
	k := listMark{From: was.Seq, Seq: m.Seq, Version: version, Same: same, Open: open}
	if open {
		k.Bytes = m.JournalBytes - was.JournalBytes
	}
	if begun := m.openMark(); begun != nil {
		k.From, k.Bytes, m.Marks = begun.From, k.Bytes+begun.Bytes, m.Marks[:len(m.Marks)-1]
	}
	switch {
	case restart || len(m.Marks) == 0 || open && k.Bytes > mostOpen:
		k.From, k.Bytes = m.Seq, 0
		m.Marks, m.Marked, m.remark = []listMark{k}, max(now, m.Marked+1), false
		m.Former = was.newest()
	case k.From < k.Seq:
		m.Marks = append(slices.Clone(m.Marks), k)
		m.Marks = m.Marks[max(0, len(m.Marks)-mostMarks):]
	}
}

// openMark is the mark of a list that has not ended, nil if there is none.
func (m *sourceMeta) openMark() *listMark {
	if n := len(m.Marks); n > 0 && m.Marks[n-1].Open {
		return &m.Marks[n-1]
	}
	return nil
}

// markChanges notes that what comes after the state was is no list's. A list that had begun
// will not go on.
func (m *sourceMeta) markChanges(was *sourceMeta, now int64) {
	changed := m.Seq > was.Seq || m.ResourceVersion != was.ResourceVersion
	if changed && m.openMark() != nil {
		m.Marks = slices.Clone(m.Marks)
		m.openMark().Open = false
	}
	if m.remark {
		m.markList(was, m.ResourceVersion, true, false, now)
	}
}

// newest is the newest version of this and of earlier series.
func (m *sourceMeta) newest() string {
	if versions.Newer(m.Former, m.ResourceVersion) || m.ResourceVersion == "" {
		return m.Former
	}
	return m.ResourceVersion
}

// isFormer says whether the server has a version only of an earlier series: it has not
// reached that version again.
func (m *sourceMeta) isFormer(version string) bool {
	return versions.Newer(version, m.ResourceVersion) && m.Former != "" && !versions.Newer(version, m.Former)
}

// reaches says whether, by the marks, the journal leads back to the state at seq.
func (m *sourceMeta) reaches(series int64, seq uint64) bool {
	switch {
	case series != m.Marked || seq > m.Seq:
		return false
	case len(m.Marks) == 0:
		return seq == m.Seq
	}
	return seq >= m.Marks[0].From
}

// listAfter returns the list that has the entry after seq among its differences. end is
// the last seq of that list or, if no list has the entry, the last seq before the next
// list.
func (m *sourceMeta) listAfter(seq uint64) (l *listMark, end uint64) {
	for i, k := range m.Marks {
		switch {
		case seq < k.From:
			return nil, k.From
		case seq < k.Seq:
			return &m.Marks[i], k.Seq
		}
	}
	return nil, m.Seq
}

// seqAt returns the seq of the last state that is not newer than version. If first is set
// and several states have one version, it is the seq of the first. ok is false if the
// journal does not say.
func (t sourceTx) seqAt(m *sourceMeta, version string, first bool) (seq uint64, ok bool, err error) {
	c, err := resourceversion.CompareResourceVersion(version, m.ResourceVersion)
	if err != nil && version != m.ResourceVersion {
		return 0, false, nil // it has no place
	}
	top, marks := m.moment().Seq, m.Marks
	if m.openMark() != nil {
		marks = marks[:len(marks)-1]
	}
	if c > 0 {
		return top, true, nil
	}
	i, again := -1, false
	for n, k := range marks {
		switch {
		case k.Same && k.Version == version && first:
			again = true
			if n == 0 {
				return k.From, true, nil
			}
		case !versions.Newer(k.Version, version):
			i = n
		}
	}
	if version == m.ResourceVersion && !again {
		return top, true, nil
	}
	if i < 0 {
		return 0, false, nil
	}
	from, end := marks[i].Seq, top
	if i+1 < len(marks) {
		end = marks[i+1].From
	}
	if from == end {
		return from, true, nil
	}
	lo := from
	if kept := t.firstEntry(); kept == 0 || kept > end {
		return 0, false, nil
	} else if kept > from+1 {
		lo = kept - 1
	}
	seq, ok, err = t.lastUpTo(version, lo, end)
	return seq, ok && (seq > lo || lo == from), err
}

// lastUpTo returns the last seq after lo and up to hi whose entry is not newer than version,
// lo if there is none. The entries must be in the order of their versions. ok is false if
// the journal lacks one of them.
func (t sourceTx) lastUpTo(version string, lo, hi uint64) (seq uint64, ok bool, err error) {
	for lo < hi {
		mid := lo + (hi-lo+1)/2
		begin, drafts, err := t.blockAt(mid, t.unpackBlock)
		if err != nil || drafts == nil {
			return 0, false, err
		}
		last := min(hi, begin+uint64(len(drafts))-1)
		at := uint64(0)
		for n := last; n > lo && n >= begin && at == 0; n-- {
			if rv := versionOf(drafts[n-begin].Next); rv != "" && !versions.Newer(rv, version) {
				at = n
			}
		}
		switch at {
		case 0:
			hi = max(lo, begin-1)
		case last:
			lo = last
		default:
			lo, hi = at, at
		}
	}
	return lo, true, nil
}

// versionOf is the resourceVersion of a record, "" if it cannot be read.
func versionOf(raw []byte) string {
	if raw == nil {
		return ""
	}
	r, err := format.ParseUnverified(raw)
	if err != nil {
		return ""
	}
	return r.ResourceVersion
}

// firstEntry is the seq of the journal's first entry, 0 if it has none.
func (t sourceTx) firstEntry() uint64 {
	j := t.Journal()
	if j == nil {
		return 0
	}
	k, _ := j.Cursor().First()
	if k == nil {
		return 0
	}
	return binary.BigEndian.Uint64(k)
}

// blockAt returns the block that has the entry seq, and the seq of its first one. It
// returns no drafts if the journal does not have the entry.
func (t sourceTx) blockAt(seq uint64, unpack func(uint64, []byte) ([]format.Draft, error)) (
	first uint64, drafts []format.Draft, err error,
) {
	j := t.Journal()
	if j == nil {
		return 0, nil, nil
	}
	first, b, err := t.seekBlock(j, seq)
	if err != nil || b == nil || first > seq {
		return 0, nil, err
	}
	drafts, err = unpack(first, b)
	if err != nil || seq-first >= uint64(len(drafts)) {
		return 0, nil, err
	}
	return first, drafts, nil
}
