package boltstore

import (
	"cmp"
	"time"

	"github.com/kubewake/kubewake/internal/listing"
)

// This file has what package reflector learns about a source's server and notes for the
// next life. It says which server that is, whether its versions move, and whether it was
// restored.

// SetServer notes which server has answered.
func (s *Claimed) SetServer(by listing.Server) error {
	return s.noteMeta(func(_ sourceTx, m *sourceMeta) error {
		m.answeredBy(by)
		return nil
	})
}

func (m *sourceMeta) answeredBy(by listing.Server) {
	if by.Other {
		m.Server, m.ClusterUID, m.ServerCA = "", "", ""
	}
	m.Server = cmp.Or(by.Address, m.Server)
	m.ClusterUID = cmp.Or(by.ClusterUID, m.ClusterUID)
	m.ServerCA = cmp.Or(by.CA, m.ServerCA)
}

// server is the server that answered last, as far as meta knows.
func (m *sourceMeta) server() listing.Server {
	return listing.Server{Address: m.Server, ClusterUID: m.ClusterUID, CA: m.ServerCA}
}

// A server may state the file's own version as its current one. Then nothing has
// changed, provided that its versions move with each change. Some servers' versions
// never move, such as those of constant objects. Others do not move with every change.

// Moves says whether the source's versions are known to move with each change. rv is the
// server's current version, as it states it. They move if rv, or the version of a list
// before the last one, differs from the last list's. They do not if Stands.
func (s *Claimed) Moves(rv string) bool {
	m := s.metaNow()
	return !s.Stands() && (m.Moved || m.Listed != "" && m.Listed != rv)
}

// Listed is the version of the last list, "" without one.
func (s *Claimed) Listed() string { return s.metaNow().Listed }

// Stands says whether the server has ever changed something without moving the source's
// version. Then an unchanged version does not show that nothing was missed. Examples are
// an object without a version, a delete with no newer version, and other content under
// the same version.
func (s *Claimed) Stands() bool { return s.stands.Load() || s.metaNow().Stands }

// NoteStands makes Stands true. The next commit writes it.
func (s *Claimed) NoteStands() { s.stands.Store(true) }

// NewestPage is the version of the last page of a list that is later than the resume point,
// "" if there is none: of a list of several versions, or of one that did not end. The file
// then has objects that are newer than its resume point.
func (s *Claimed) NewestPage() string { return s.metaNow().NewestPage }

// listedAt notes in m what a list at rv shows about how versions move.
func (r *Relist) listedAt(m, was *sourceMeta, rv string) {
	differs := r.Deleted > 0 || r.Changed > 0 && !r.content
	expected := r.all || r.first || r.o.Audit || r.o.NewTimeline
	repaired := expected || was.Local || was.Noted != (noted{}) || r.s.Err() != nil
	m.Stands = was.Stands || r.s.stands.Load() || r.unversioned || differs && rv == was.ResourceVersion && rv != "" && !repaired
	m.Moved = was.Moved || was.Listed != "" && rv != "" && was.Listed != rv
	m.Listed = rv
}

// NoteRestored notes that the server was restored to an earlier state, so that the
// objects are of an earlier timeline. Later the server's version may have overtaken
// theirs, so the note stays in the file until a list of the new timeline is committed.
// What an interrupted first list has stored is removed at once. No relist may be under way.
func (s *Claimed) NoteRestored() error {
	if err := s.DropPartial(); err != nil {
		return err
	}
	if m := s.metaNow(); m.Restored || m.Contents == contentsNone {
		return nil
	}
	return s.noteMeta(func(_ sourceTx, m *sourceMeta) error {
		m.Restored = true
		return nil
	})
}

// Restored says whether NoteRestored was called, in this life or an earlier one, and no
// list of the new timeline was committed since.
func (s *Claimed) Restored() bool { return s.metaNow().Restored }

// NoteFiltered notes whether the program's list function leaves out what the server lists.
// A list that the function has not made then shows nothing.
func (s *Claimed) NoteFiltered(filtered bool) error {
	if s.Filtered() == filtered {
		return nil
	}
	return s.noteMeta(func(_ sourceTx, m *sourceMeta) error {
		m.Filtered = filtered
		return nil
	})
}

// Filtered returns the last argument of NoteFiltered, in this life or an earlier one.
func (s *Claimed) Filtered() bool { return s.metaNow().Filtered }

// NoteMetadataSize notes how many bytes the metadata of an object takes in a list. The
// next commit or Release writes it; it causes no commit of its own.
func (s *Claimed) NoteMetadataSize(bytes uint64) { s.metadataSize.Store(bytes) }

// MetadataSize returns the last argument of NoteMetadataSize, in this life or an earlier
// one, 0 if there was none.
func (s *Claimed) MetadataSize() uint64 { return s.metadataSize.Load() }

// comparison is when a list was compared with the file, and found no difference.
type comparison struct {
	at int64 // unix ns
	by *stamp
}

// NoteCompared notes that the file was compared with a list of all objects, and that they
// were the same. The next commit or Release writes it; it causes no commit of its own. A
// relist notes by itself that it has compared.
func (s *Claimed) NoteCompared() {
	at, by := s.db.device.at(s.db.opts.Clock.Now())
	s.compared.Store(&comparison{at, by})
}

// stampNotes puts into m what was noted for the next commit.
func (s *source) stampNotes(m *sourceMeta) {
	m.MetadataSize = s.metadataSize.Load()
	if c := s.compared.Load(); c != nil {
		m.Compared, m.ComparedBy, m.Differed = c.at, c.by, 0
	}
}

// comparedSince puts into st what NoteCompared has noted and the file does not have yet.
func (s *source) comparedSince(st *State) {
	if c := s.compared.Load(); c != nil {
		st.Compared, st.ComparedAge, st.Differed = time.Unix(0, c.at), nil, 0
		if age, ok := s.db.device.age(c.at, c.by); ok {
			st.ComparedAge = &age
		}
	}
}

// notesChanged says whether stampNotes has something to write.
func (s *source) notesChanged() bool {
	m, c := s.metaNow(), s.compared.Load()
	compared := c != nil && c.at != m.Compared
	return s.metadataSize.Load() != m.MetadataSize || compared
}
