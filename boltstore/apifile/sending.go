package apifile

import (
	"cmp"
	"maps"
	"sync"
	"weak"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// sending has the changes that watches are sending: one of each for all watches, whichever
// handlers have them. It keeps none of them in memory.
type sending struct {
	mu      sync.Mutex
	changes map[place]weak.Pointer[kubeapi.Change]
	sweep   int // the number of changes at which those that are gone are dropped

	reading chan struct{}
}

var shared = sending{changes: map[place]weak.Pointer[kubeapi.Change]{}, reading: make(chan struct{}, mostReading)}

// mostReading is how many watches read changes at a time. All wake at once, and each change
// may be large.
const mostReading = 4

// read waits for a place to read changes in.
func (w *watcher) read() {
	w.hasRead()
	shared.reading <- struct{}{}
	w.reads = true
}

// hasRead gives the place back, once the changes are decoded.
func (w *watcher) hasRead() {
	if w.reads {
		<-shared.reading
		w.reads = false
	}
}

// place is where a change is in a journal, and how it is sent.
type place struct {
	db      weak.Pointer[boltstore.DB]
	source  boltstore.Source
	series  int64
	seq     uint64
	version uint64
	copies  bool
}

// lately returns the change at a place if a watch has lately sent it, or nil.
func (s *sending) lately(p place) *kubeapi.Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes[p].Value()
}

// change is an entry's change, the same for all watches that are at it. nil is as in
// source.change.
func (s *sending) change(src *source, p place, e *boltstore.Entry) (*kubeapi.Change, error) {
	if c := s.lately(p); c != nil {
		return c, nil
	}
	c, err := src.change(e, p.version, p.copies)
	if c == nil || err != nil {
		return nil, err
	}
	c.Again = func() (*kubeapi.Change, error) { return s.again(src, p) }
	if o := cmp.Or(c.Cur, c.Final); o != nil {
		o.Again = func() (*kubeapi.Object, error) {
			c, err := s.again(src, p)
			if err != nil {
				return nil, err
			}
			return cmp.Or(c.Cur, c.Final), nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.changes[p].Value(); other != nil {
		return other, nil
	}
	if len(s.changes) >= s.sweep {
		maps.DeleteFunc(s.changes, func(_ place, c weak.Pointer[kubeapi.Change]) bool { return c.Value() == nil })
		s.sweep = 2*len(s.changes) + 64
	}
	s.changes[p] = weak.Make(c)
	return c, nil
}

// again returns a change that a watch is sending, and reads it unless it is still in memory.
func (s *sending) again(src *source, p place) (*kubeapi.Change, error) {
	if c := s.lately(p); c != nil {
		return c, nil
	}
	s.reading <- struct{}{}
	defer func() { <-s.reading }()
	e, err := src.EntriesAfter(boltstore.Moment{Series: p.series, Seq: p.seq - 1})
	if err == nil && (len(e.Entries) == 0 || e.Entries[0].Seq != p.seq) {
		err = boltstore.ErrTrimmed
	}
	if err != nil {
		return nil, err
	}
	c, err := s.change(src, p, e.Entries[0])
	if c == nil {
		err = cmp.Or(err, boltstore.ErrTrimmed)
	}
	return c, err
}
