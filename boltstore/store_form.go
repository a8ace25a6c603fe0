package boltstore

// DoubtForm says whether the server may serve the objects in another form than at the
// last relist. It is in the file with the next commit or Release, and costs none of its
// own.
func (s *Claimed) DoubtForm(doubted bool) { s.formDoubted.Store(doubted) }

// FormDoubted is what DoubtForm last said, be it in an earlier life.
func (s *Claimed) FormDoubted() bool { return s.formDoubted.Load() }
