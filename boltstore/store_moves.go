package boltstore

// A server that states the file's own version as its current one says that
// nothing has changed, if its versions move with each change. Some never do, such
// as a constant's, and some not with every change.

// Moves says whether the source's versions move with each change, as far as the
// file knows, where the server states rv as its current version. They do where rv,
// or a list before the last one, is of another version than the last list. They do
// not once the server has shown an object without a version, a delete of no newer
// version, or another content under the version that the file had.
func (s *Claimed) Moves(rv string) bool {
	m := s.metaNow()
	return !s.Stands() && (m.Moved || m.Listed != "" && m.Listed != rv)
}

// Stands says whether there are changes that do not move the source's versions,
// so that no version says that nothing was missed.
func (s *Claimed) Stands() bool { return s.stands.Load() || s.metaNow().Stands }

// NoteStands notes that there are, with the next commit.
func (s *Claimed) NoteStands() { s.stands.Store(true) }

// listedAt notes what a list at rv tells of the versions. m is what the file had.
func (r *Relist) listedAt(m *sourceMeta, rv string) {
	was := r.s.metaNow()
	differs := r.Deleted > 0 || r.Changed > 0 && !r.content
	repaired := r.all || r.first || r.o.NewHistory || was.Own.Count > 0 || was.Noted != (noted{}) || r.s.Err() != nil
	m.Stands = was.Stands || r.s.stands.Load() || r.unversioned || differs && rv == was.ResourceVersion && rv != "" && !repaired
	m.Moved = was.Moved || was.Listed != "" && rv != "" && was.Listed != rv
	m.Listed = rv
}
