package boltstore

// NoteRestored notes that the server was restored to an earlier state, so that the
// objects are of an earlier timeline. Later the server's version may have overtaken
// theirs, so the note stays in the file until a list of the new timeline is committed.
// The pages of an interrupted first list are removed at once. No relist may be under way.
func (s *Claimed) NoteRestored() error {
	if err := s.DropProgress(); err != nil {
		return err
	}
	if m := s.metaNow(); m.Restored || m.Generation == 0 {
		return nil
	}
	return s.noteMeta(func(_ sourceTx, m *sourceMeta) error {
		m.Restored = true
		return nil
	})
}

// NewestPage is the version of the last list's last page if that is later than the first
// page's, otherwise "". The file then has objects that are newer than its resume point.
func (s *Claimed) NewestPage() string { return s.metaNow().NewestPage }

// Restored says whether NoteRestored was called, in this life or an earlier one, and no
// list of the new timeline was committed since.
func (s *Claimed) Restored() bool { return s.metaNow().Restored }
