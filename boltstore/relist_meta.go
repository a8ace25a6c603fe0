package boltstore

import (
	"maps"

	"github.com/kubewake/kubewake/internal/listing"
)

// While a list is staged, the source goes on: handlers are forgotten, the
// type is described. So the commit of a stage takes meta as it is by then. From the stage
// it takes only the fields of the new generation and of the journal.

// takeStage turns m, a copy of the present meta, into that of a staged generation. All
// fields that are not named here stay.
func (m *sourceMeta) takeStage(st *stage) {
	g := st.meta
	m.Generation, m.Local, m.Degraded = g.Generation, g.Local, g.Degraded
	m.Items, m.Bytes, m.Noted = g.Items, g.Bytes, g.Noted
	m.Indices = maps.Clone(g.Indices)
	// Nothing else has been journaled since, but old blocks may have been trimmed.
	m.Seq, m.Dated, m.remark = g.Seq, g.Dated, m.remark || g.remark
	m.JournalBytes += g.JournalBytes - st.journalBytes
}

// staysIncomplete marks the indices as incomplete that are not complete in was, the meta
// of the generation that m replaces. It leaves out those that are known to be whole.
func (m *sourceMeta) staysIncomplete(was *sourceMeta, whole func(name string) bool) {
	for name, im := range m.Indices {
		old := was.Indices[name]
		if im.Complete && !whole(name) && (!old.Complete || old.Version != im.Version) {
			m.doubtIndex(name)
		}
	}
}

// doubtIndex marks an index as incomplete, if there is one of that name: it may lack
// objects.
func (m *sourceMeta) doubtIndex(name string) {
	if im, ok := m.Indices[name]; ok {
		im.Complete = false
		m.Indices[name] = im
	}
}

// doubtIndices marks all indices as incomplete: nothing shows which of them lack an
// object.
func (m *sourceMeta) doubtIndices() {
	for name := range m.Indices {
		m.doubtIndex(name)
	}
}

// noteServer notes in m which server has answered the list. SetServer's notes since the
// list began are newer than the options, and the pages are newer still.
func (r *Relist) noteServer(m *sourceMeta) {
	began := listing.Server{ClusterUID: r.o.ClusterUID, Address: r.o.Server}
	if m.ClusterUID != r.known.ClusterUID {
		began.ClusterUID = ""
	}
	if m.Server != r.known.Address {
		began.Address = ""
	}
	m.answeredBy(began)
	m.answeredBy(r.by)
}
