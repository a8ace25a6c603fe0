package boltstore

// A plain handler has no name in the file. The told mark waits for the plain handler that
// the next life may add, and the journal keeps all entries above the mark. A source that
// never had a plain handler owes nothing to one, so its mark does not wait.

// AwaitsPlain says whether a plain handler was added to the source since it was made, in
// this life or an earlier one. It is true if the file does not know.
func (s Delivery) AwaitsPlain() bool { return !s.handlers.noPlain.Load() }

// AddsPlain says that a plain handler is being added. The next commit writes it, or
// ExpectPlain does.
func (s Delivery) AddsPlain() { s.handlers.noPlain.Store(false) }

// ExpectPlain makes sure that the file says that a plain handler was added. Call it
// before the handler's first call: the next life owes deletes only to handlers that it
// knows about. It costs one commit in a source's whole time, and none if the first list
// is committed after AddsPlain.
func (s Delivery) ExpectPlain() error {
	if !s.metaNow().NoPlain {
		return nil
	}
	return s.noteMeta(func(_ sourceTx, m *sourceMeta) error {
		m.NoPlain = false
		return nil
	})
}

// SetTold notes that all plain handlers have returned up to seq. The source's next commit
// writes the told mark (work.stamp), or one within FlushInterval, and so does Release
// (writeMarks). Empty moves the mark past all entries: they are
// of another cluster.
func (s Delivery) SetTold(seq uint64) {
	for {
		old := s.handlers.told.Load()
		if seq <= old || s.handlers.told.CompareAndSwap(old, seq) {
			return
		}
	}
}

func (hs *handlers) toldChanged() bool { return hs.told.Load() > hs.s.metaNow().Told }
