package boltstore

import (
	"fmt"
)

// Contents tells one state of a source's objects from another. It is comparable.
type Contents struct {
	known   bool
	objects digest
}

// Changed returns a channel that is closed once the source's next commit can be read.
// Take the channel before reading, so that you miss no commit. Nothing waits for you to
// listen. The error is ErrClosed once the claim is released or the file is closed, since
// no commit follows. A store of [DB.View] always returns an error: see [DB.Committed].
func (s *Store) Changed() (<-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.news.next == nil {
		s.news.next = make(chan struct{})
	}
	switch {
	case s.life.viewed:
		return s.news.next, fmt.Errorf("boltstore: %s: this store is a view, which is not told of commits; use the "+
			"store of the informer or the claim", s.name)
	case s.life.released, s.news.shut:
		return s.news.next, fmt.Errorf("boltstore: %s: %w: it does not change any more", s.name, ErrClosed)
	}
	return s.news.next, nil
}

// tellChanged needs mu.
func (s *source) tellChanged() {
	if s.news.next != nil {
		close(s.news.next)
		s.news.next = nil
	}
}

// shutDown notes that the file is closed.
func (s *source) shutDown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.news.shut = true
	s.tellChanged()
}

// ListWhole returns all objects as of one commit, and their Contents. It returns no
// objects (nil) if the contents are still those of than, and while the state is not whole.
// It is not before the first list of an informer's source, after it was
// emptied, and while they are outdated. A source that its program fills has no objects
// before the program's first write. If some objects cannot be served, it returns an error
// and none.
func (s *Store) ListWhole(than Contents) (objs []any, is Contents, err error) {
	if r := s.memory.shown(); r != nil && s.writer.whole(s.metaNow()) {
		s.memory.mu.RLock()
		defer s.memory.mu.RUnlock()
		if is = (Contents{true, r.digest}); is == than {
			return nil, is, nil
		}
		return r.store.List(), is, nil
	}
	err = s.reader.read(func(m *sourceMeta, _ sourceTx, g contentsTx) error {
		objs, is = nil, Contents{}
		if !s.writer.whole(m) || g.Items == nil && m.Contents != contentsNone {
			return nil
		}
		if m.Degraded != "" {
			return fmt.Errorf("%w: %s", ErrDamaged, m.Degraded)
		}
		if is = (Contents{true, m.Items}); is == than {
			return nil
		}
		objs, err = s.reader.all(m, g)
		return err
	})
	if s.health.note(err) != nil {
		return nil, Contents{}, fmt.Errorf("boltstore: %s: %w", s.name, err)
	}
	return objs, is, nil
}

// whole says whether m's contents are complete, as far as the file knows.
func (w *writer) whole(m *sourceMeta) bool {
	return m.listed() || !w.expectsProducer() && (m.Contents != contentsNone || m.ResourceVersion != "")
}
