package boltstore

import (
	"sync"
	"time"

	"github.com/kubewake/kubewake/internal/listing"
)

// facts are the file's facts and what was noted since, see Upstream.NoteFacts.
type facts struct {
	mu sync.Mutex
	is listing.Facts
}

func (f *facts) now() listing.Facts {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.is
}

func (f *facts) note(change func(*listing.Facts)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.is)
}

// Facts are what the source's feeder has learned of the server, in this life or an earlier
// one, see [Upstream.NoteFacts] and [Relist.Ended]. The store only keeps and shows them. They
// are gone after Empty.
func (s Upstream) Facts() listing.Facts { return s.facts.now() }

// NoteFacts changes the facts. The next commit or Release writes them; it causes no commit of
// its own.
func (s Upstream) NoteFacts(change func(*listing.Facts)) { s.facts.note(change) }

// WriteFacts is NoteFacts, and writes the facts at once, unless those in the file are so
// already. After an error they are still noted.
func (s Upstream) WriteFacts(change func(*listing.Facts)) error {
	s.facts.note(change)
	stored := s.metaNow().Facts
	changed := stored
	if change(&changed); changed == stored {
		return nil
	}
	return s.noteMeta(func(_ sourceTx, m *sourceMeta) error {
		m.Facts = s.facts.now()
		return nil
	})
}

// comparison is when a list was compared with the file, and found no difference.
type comparison struct {
	at int64 // unix ns
	by *stamp
}

// NoteCompared notes that the file was compared with a list of all objects, and that they
// were the same. The next commit or Release writes it; it causes no commit of its own. A
// relist notes by itself that it has compared.
func (s Upstream) NoteCompared() {
	at, by := s.db.device.at(s.db.opts.Clock.Now())
	s.compared.Store(&comparison{at, by})
}

// stampNotes puts into m what was noted for the next commit.
func (s *source) stampNotes(m *sourceMeta) {
	m.Facts = s.facts.now()
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
	return s.facts.now() != m.Facts || c != nil && c.at != m.Compared
}
