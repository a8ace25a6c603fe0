package boltstore

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

// listedAt notes in m what a list at rv shows about how versions move.
func (r *Relist) listedAt(m *sourceMeta, rv string) {
	was := r.s.metaNow()
	differs := r.Deleted > 0 || r.Changed > 0 && !r.content
	repaired := r.all || r.first || r.o.NewTimeline || was.Own.Count > 0 || was.Noted != (noted{}) || r.s.Err() != nil
	m.Stands = was.Stands || r.s.stands.Load() || r.unversioned || differs && rv == was.ResourceVersion && rv != "" && !repaired
	m.Moved = was.Moved || was.Listed != "" && rv != "" && was.Listed != rv
	m.Listed = rv
}
