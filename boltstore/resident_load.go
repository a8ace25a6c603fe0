package boltstore

import (
	"errors"
	"fmt"
	"reflect"

	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// loaded is one record that the loader has read.
type loaded struct {
	key  string
	rec  *format.Record // its payload is overwritten by the next page
	obj  any
	slot *slot
}

// inMemory is the source's objects in memory, nil if readers use the file.
func (s *Store) inMemory() *resident { return s.memory.served.Load() }

// serves says whether reads of r were whole until now. Once r is dropped, it loses
// objects while others are loaded.
func (s *Store) serves(r *resident) bool { return s.memory.served.Load() == r }

// residence is the part of State about memory.
func (s *Store) residence() (inMemory bool, size uint64) {
	r := s.inMemory()
	if r == nil {
		return false, 0
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	return true, uint64(max(r.size, 1))
}

// remember brings memory in line with m, which readers of the file see from now on. The
// caller holds the handle's writeMu, so commits come in their order.
func (s *Store) remember(m *sourceMeta) {
	changed := m.changed
	m.changed = nil
	r := s.memory.now.Load()
	if r == nil {
		return
	}
	if r.of != s.edition(m) {
		s.memory.mu.Lock()
		s.memory.last = r
		s.memory.mu.Unlock()
		s.forget(r)
		return
	}
	r.incomplete(m)
	if err := r.apply(changed, m); err != nil {
		s.giveUp(r, err)
	}
}

// giveUp has readers use the file again.
func (s *Store) giveUp(r *resident, err error) {
	s.forget(r)
	switch {
	case errors.Is(err, errOverBudget), errors.Is(err, ErrClosed):
	case errors.Is(err, ErrDamaged):
		s.damaged(err)
	default:
		s.db.log().Error(err, "The objects in memory are dropped", "source", s.source.String())
	}
}

// forget drops r: readers use the file.
func (s *Store) forget(r *resident) {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.dropped = true
	s.memory.served.CompareAndSwap(r, nil)
	seen, counted := r.seen(), r.size+r.reserved
	r.before, r.early = nil, nil
	r.mu.Unlock()
	if !s.memory.now.CompareAndSwap(r, nil) {
		return
	}
	s.memory.mu.Lock()
	if seen.ratio > 0 {
		s.memory.seen = seen
	}
	s.memory.mu.Unlock()
	s.db.objects.give(counted)
	s.db.objects.tryRefused(s.db)
}

// settleMemory begins to load the objects if they should be in memory and are not. It is
// called whenever that may have changed.
func (s *Store) settleMemory() {
	if s.memory.now.Load() != nil || !s.memory.wanted.Load() || s.ending() {
		return
	}
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	last := s.memory.last
	s.memory.last = nil
	s.mu.RLock()
	m := s.meta
	hidden := m == nil || s.broken != nil || s.released || s.hides(m)
	s.mu.RUnlock()
	if hidden || s.memory.now.Load() != nil || !s.memory.wanted.Load() {
		return
	}
	size := s.estimate(m)
	if !s.db.objects.reserve(size) {
		return
	}
	r := newResident(s, m, last)
	if r.store == nil {
		s.db.objects.give(size)
		return
	}
	r.reserved = size
	s.memory.now.Store(r)
	s.db.objects.run(func() { s.fill(r) })
}

// estimate is about how much memory the source's objects take, in bytes.
func (s *Store) estimate(m *sourceMeta) int64 {
	if seen := s.memory.seen; seen.ratio > 0 {
		return int64(seen.ratio*float64(m.Bytes) + seen.each*float64(m.Items.Count))
	}
	return s.residentSize(int(m.Bytes)) + int64(m.Items.Count)*residentBase
}

// beginMemory lets the source's objects be in memory from now on.
func (s *Store) beginMemory() {
	if s.db.objects.budget <= 0 || s.goType.Kind() != reflect.Pointer || s.goType.Elem().Size() == 0 {
		return // memory tells objects apart by their pointers; those to nothing are all the same
	}
	s.memory.mu.Lock()
	over := s.ending() // Close may have released the source
	if !over {
		detector, end := cache.NewCacheMutationDetector(s.source.String()), make(chan struct{})
		s.memory.mutated, s.memory.unwatched = detector, end
		s.db.objects.run(func() { detector.Run(end) })
		s.memory.wanted.Store(true)
	}
	s.memory.mu.Unlock()
	if !over {
		s.settleMemory()
	}
}

// endMemory has readers use the file from now on.
func (s *Store) endMemory() {
	s.memory.wanted.Store(false)
	s.forget(s.memory.current())
	s.memory.mu.Lock()
	defer s.memory.mu.Unlock()
	s.memory.last = nil
	if s.memory.unwatched != nil {
		s.memory.unwatch.Do(func() { close(s.memory.unwatched) })
	}
}

// fill loads r from the file, page by page, and then has readers use it.
func (s *Store) fill(r *resident) {
	s.indexMemory(s.indexing().indexSet().fns, &adding{}) // of those that were built since r was made
	var from, room []byte
	for more := true; more; more = from != nil {
		found, next, current, err := s.reading().loadPage(r, from, &room)
		if err == nil && current {
			current, err = r.load(found)
		}
		switch {
		case err != nil:
			s.giveUp(r, err)
			return
		case !current:
			s.forget(r)
			s.settleMemory()
			return
		}
		from = next
	}
	if err := s.install(r); err != nil {
		s.giveUp(r, err)
		return
	}
	s.db.objects.tryRefused(s.db) // it may have needed less than was reserved
}

// install has readers use r, which is complete.
func (s *Store) install(r *resident) error {
	s.db.h.writeMu.Lock() // no commit is under way
	defer s.db.h.writeMu.Unlock()
	m := s.metaNow()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dropped || r.of != s.edition(m) {
		return nil // remember drops it
	}
	if r.digest != m.Items {
		return fmt.Errorf("boltstore: %s: %w: the records are not those last committed: %d of %d", s.source, ErrDamaged, r.digest.Count, m.Items.Count)
	}
	s.db.objects.give(r.reserved)
	r.touched, r.before, r.early, r.reserved = nil, nil, nil, 0
	r.ready = true
	s.memory.served.Store(r)
	s.hot.clear()
	return nil
}

// loadPage reads and decodes a page of records, which it copies to room. current is false
// if the file's contents are not those of r, or the source has ended.
func (s reading) loadPage(r *resident, from []byte, room *[]byte) (found []loaded, next []byte, current bool, err error) {
	if s.ending() {
		return nil, nil, false, nil
	}
	var raws []layout.Raw // copies: writers wait for the transaction
	b := (*room)[:0]
	clone := func(p []byte) []byte {
		at := len(b)
		b = append(b, p...)
		return b[at:len(b):len(b)]
	}
	page := func(m *sourceMeta, src sourceTx) error {
		current = r.of == s.edition(m)
		g := src.gen(m.Generation)
		if !current || g.Items == nil {
			return nil
		}
		size := 0
		var err error
		next, err = layout.Page(g.Items.Cursor(), from, func(_ []byte, raw layout.Raw) bool {
			if size >= pageBytes {
				return false
			}
			raws = append(raws, layout.Raw{Key: clone(raw.Key), Stored: clone(raw.Open())})
			size += len(raw.Stored)
			return true
		})
		return err
	}
	err = s.db.h.alone(func(tx *bolt.Tx) error { return s.in(tx, page) })
	*room = b
	if err != nil || !current {
		return nil, nil, current, err
	}
	found = make([]loaded, len(raws))
	err = s.decodeEach(raws, func(i int, key string, rec *format.Record) error {
		obj, err := s.decode(key, rec, true) // a replay need not decode it again
		found[i] = loaded{key, rec, obj, s.slotOf(key, rec, len(raws[i].Stored))}
		return err
	})
	return found, next, current, err
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

// indexMemory adds indices to memory. ahead has values of those that are new.
func (s *Store) indexMemory(fns cache.Indexers, ahead *adding) {
	s.db.h.writeMu.Lock() // no commit is under way
	defer s.db.h.writeMu.Unlock()
	if r := s.memory.now.Load(); r != nil && !r.index(fns, ahead, s.metaNow()) {
		s.forget(r)
		s.settleMemory()
	}
}
