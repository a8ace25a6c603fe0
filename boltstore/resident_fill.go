package boltstore

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// memory is a Store's objects in memory.
type memory struct {
	// served is what readers use, nil if they use the file.
	served atomic.Pointer[resident]

	mu     sync.RWMutex
	now    *resident // the one that is being filled or served
	wanted bool      // the source is claimed, and there is a budget
	// factor is by how much the objects took more memory than was estimated when they did
	// not fit; see estimate.
	factor float64

	// disagreed counts how often memory differed from the file. It is then filled again;
	// tests fail.
	disagreed atomic.Uint64

	// mutated watches the objects if KUBE_CACHE_MUTATION_DETECTOR is set, as client-go
	// does. It does nothing by default.
	mutated cache.MutationDetector
}

// inMemory is the source's objects in memory, nil if readers use the file.
func (s *Store) inMemory() *resident { return s.memory.served.Load() }

// residence is the part of State about memory.
func (s *Store) residence() (inMemory bool, size uint64) {
	s.memory.mu.RLock()
	defer s.memory.mu.RUnlock()
	if r := s.inMemory(); r != nil {
		return true, uint64(max(r.size, 1))
	}
	return false, 0
}

// resident returns the object of exactly that record, nil if memory does not have it.
func (s *Store) resident(key string, rec *format.Record) any {
	r := s.inMemory()
	if r == nil {
		return nil
	}
	s.memory.mu.RLock()
	defer s.memory.mu.RUnlock()
	if obj, sl, ok := r.at(key); ok && sl.hash == format.HashRecord(key, rec) {
		return obj
	}
	return nil
}

// remember brings memory in line with m, which readers of the file see from now on. The
// caller holds the handle's writeMu, so commits come in their order.
func (s *Store) remember(m *sourceMeta) {
	changed := m.changed
	m.changed = nil
	s.memory.mu.Lock()
	r, err := s.memory.now, error(nil)
	switch {
	case r == nil:
	case r.of != s.edition(m):
		s.dropLocked(r)
	case r != s.inMemory():
		r.waiting = append(r.waiting, changed...)
	default:
		r.incomplete(m)
		err = r.follow(changed, m)
	}
	s.memory.mu.Unlock()
	if errors.Is(err, errDisagrees) {
		s.memory.disagreed.Add(1)
	}
	s.giveUp(r, m, err)
}

// giveUp drops r if there is an error: readers use the file. m is the meta of its objects.
func (s *Store) giveUp(r *resident, m *sourceMeta, err error) {
	if err == nil {
		return
	}
	s.memory.mu.Lock()
	if errors.Is(err, errOverBudget) {
		s.memory.factor = float64(r.size) / float64(max(s.shownSize(m), 1))
	}
	s.dropLocked(r)
	s.memory.mu.Unlock()
	switch {
	case errors.Is(err, errOverBudget), errors.Is(err, ErrClosed):
	case errors.Is(err, errOtherItems):
		s.settleMemory()
	case errors.Is(err, ErrDamaged):
		s.damaged(err)
	default:
		s.db.log().Error(err, "The objects in memory are dropped", "source", s.source.String())
	}
}

// forget drops the objects in memory.
func (s *Store) forget() {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.dropLocked(s.memory.now)
}

// dropLocked has readers use the file, unless r was dropped before.
func (s *Store) dropLocked(r *resident) {
	if r == nil || r != s.memory.now {
		return
	}
	s.memory.served.Store(nil)
	s.memory.now = nil
	s.db.objects.add(-r.counted)
}

// beginMemory lets the source's objects be in memory from now on.
func (s *Store) beginMemory() {
	if s.db.objects.budget <= 0 || s.goType.Kind() != reflect.Pointer || s.goType.Elem().Size() == 0 {
		return // memory tells objects apart by their pointers; those to nothing are all the same
	}
	s.memory.mu.Lock()
	s.memory.wanted = true
	s.memory.mu.Unlock()
	s.mu.RLock()
	if !s.ending() {
		s.retriers.Go(func() { s.memory.mutated.Run(s.ended) })
	}
	s.mu.RUnlock()
	s.settleMemory()
}

// endMemory has readers use the file from now on.
func (s *Store) endMemory() {
	s.memory.mu.Lock()
	r := s.memory.now
	s.memory.wanted = false
	s.dropLocked(r)
	s.memory.mu.Unlock()
	if r != nil {
		<-r.filled
	}
}

// settleMemory begins to load the objects if they should be in memory, are not, and fit. It
// is called whenever that may have changed.
func (s *Store) settleMemory() {
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if s.memory.now != nil || !s.memory.wanted {
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	m := s.meta
	if m == nil || s.broken != nil || s.released || s.hides(m) || s.ending() {
		return
	}
	size := s.estimate(m)
	if !s.db.objects.reserve(size) {
		return
	}
	r := newResident(s, m)
	r.counted = size
	s.memory.now = r
	s.retriers.Go(func() {
		defer close(r.filled)
		m, err := s.fill(r)
		s.giveUp(r, m, err)
	})
}

// awaitMemory returns once objects that are being loaded are in memory. Who reads all of
// them need not decode them again, and has the same ones as readers.
func (s *Store) awaitMemory() {
	s.memory.mu.RLock()
	r := s.memory.now
	s.memory.mu.RUnlock()
	if r != nil {
		<-r.filled
	}
}

// fill loads r from the file and has readers use it. m is the meta of what it has loaded.
func (s *Store) fill(r *resident) (m *sourceMeta, err error) {
	err = s.view(func(is *sourceMeta, src sourceTx) error {
		m = is
		if r.of != s.edition(m) {
			return errOtherItems
		}
		g, err := src.served(m)
		if err != nil {
			return err
		}
		var raws []layout.Raw
		if err := g.Items.Each(func(raw layout.Raw) { raws = append(raws, raw) }); err != nil {
			return err
		}
		return s.reading().load(r, raws)
	})
	if err != nil {
		return m, err
	}
	s.db.h.writeMu.Lock() // no commit is under way
	defer s.db.h.writeMu.Unlock()
	m = s.metaNow()
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if s.memory.now != r {
		return m, nil
	}
	err = r.follow(r.waiting, m)
	r.waiting = nil
	switch {
	case errors.Is(err, errDisagrees):
		return m, fmt.Errorf("boltstore: %s: %w: the records are not those last committed: %d of %d",
			s.source, ErrDamaged, r.digest.Count, m.Items.Count)
	case err != nil:
		return m, err
	}
	r.index(m)
	s.memory.served.Store(r)
	s.hot.clear()
	return m, nil
}

// load decodes records, within their transaction, unless all of them need too much room.
func (s reading) load(r *resident, raws []layout.Raw) error {
	room := s.room(r)
	var size atomic.Int64
	found := make([]itemChange, len(raws))
	err := s.decodeEach(raws, func(i int, key string, rec *format.Record) error {
		switch {
		case s.ending():
			return ErrClosed
		case size.Add(s.slotSize(key, rec)) > room:
			return errOverBudget
		}
		obj, err := s.decode(key, rec, false)
		found[i] = itemChange{key: key, next: rec, obj: obj}
		return err
	})
	if err != nil {
		r.size = size.Load()
		return err
	}
	return r.apply(found)
}

// ending says whether the claim or the file is about to end.
func (s *Store) ending() bool {
	select {
	case <-s.ended:
		return true
	case <-s.db.whileOpen.ctx.Done():
		return true
	default:
		return false
	}
}

// indexMemory lets readers find the indices that the file has whole in memory, too.
func (s *Store) indexMemory() {
	s.db.h.writeMu.Lock() // no commit is under way
	defer s.db.h.writeMu.Unlock()
	m := s.metaNow()
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	if r := s.inMemory(); r != nil {
		r.index(m)
	}
}
