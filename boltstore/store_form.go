package boltstore

// DoubtForm says whether the server may serve the objects in another form than at the
// last relist. The next commit or Release writes it; it causes no commit of its own.
func (s *Claimed) DoubtForm(doubted bool) { s.formDoubted.Store(doubted) }

// FormDoubted returns the last argument of DoubtForm, in this life or an earlier one.
func (s *Claimed) FormDoubted() bool { return s.formDoubted.Load() }
