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

// memory is a source's objects in memory.
type memory struct {
	s *source
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

// shown is the source's objects in memory, nil if readers use the file.
func (mem *memory) shown() *resident { return mem.served.Load() }

// size is the part of State about memory.
func (mem *memory) size() (inMemory bool, size uint64) {
	mem.mu.RLock()
	defer mem.mu.RUnlock()
	if r := mem.shown(); r != nil {
		return true, uint64(max(r.size, 1))
	}
	return false, 0
}

// find returns the object of exactly that record, nil if memory does not have it.
func (mem *memory) find(key string, rec *format.Record) any {
	r := mem.shown()
	if r == nil {
		return nil
	}
	mem.mu.RLock()
	defer mem.mu.RUnlock()
	if obj, sl, ok := r.at(key); ok && sl.hash == format.HashRecord(key, rec) {
		return obj
	}
	return nil
}

// follow brings memory in line with m, which readers of the file see from now on. The
// caller holds the handle's writeMu, so commits come in their order.
func (mem *memory) follow(m *sourceMeta) {
	changed := m.changed
	m.changed = nil
	mem.mu.Lock()
	r, err := mem.now, error(nil)
	switch {
	case r == nil:
	case r.of != editionOf(m):
		mem.drop(r)
	case r != mem.shown():
		r.waiting = append(r.waiting, changed...)
	default:
		r.incomplete(m)
		err = r.follow(changed, m)
	}
	mem.mu.Unlock()
	if errors.Is(err, errDisagrees) {
		mem.disagreed.Add(1)
	}
	mem.giveUp(r, m, err)
}

// giveUp drops r if there is an error: readers use the file. m is the meta of its objects.
func (mem *memory) giveUp(r *resident, m *sourceMeta, err error) {
	if err == nil {
		return
	}
	mem.mu.Lock()
	if errors.Is(err, errOverBudget) {
		mem.factor = float64(r.size) / float64(max(mem.shownSize(m), 1))
	}
	mem.drop(r)
	mem.mu.Unlock()
	switch {
	case errors.Is(err, errOverBudget), errors.Is(err, ErrClosed):
	case errors.Is(err, errOtherItems):
		mem.settle()
	case errors.Is(err, ErrDamaged):
		mem.s.health.meet(err)
	default:
		mem.s.db.log().Error(err, "The objects in memory are dropped", "source", mem.s.name.String())
	}
}

// forget drops the objects in memory.
func (mem *memory) forget() {
	mem.mu.Lock()
	defer mem.mu.Unlock()
	mem.drop(mem.now)
}

// drop has readers use the file, unless r was dropped before.
func (mem *memory) drop(r *resident) {
	if r == nil || r != mem.now {
		return
	}
	mem.served.Store(nil)
	mem.now = nil
	mem.s.db.objects.add(-r.counted)
}

// begin lets the source's objects be in memory from now on.
func (mem *memory) begin() {
	of := mem.s.coder.goType
	if mem.s.db.objects.budget <= 0 || of.Kind() != reflect.Pointer || of.Elem().Size() == 0 {
		return // memory tells objects apart by their pointers; those to nothing are all the same
	}
	mem.mu.Lock()
	mem.wanted = true
	mem.mu.Unlock()
	mem.s.mu.RLock()
	if !mem.s.ending() {
		mem.s.life.goroutines.Go(func() { mem.mutated.Run(mem.s.life.ended) })
	}
	mem.s.mu.RUnlock()
	mem.settle()
}

// end has readers use the file from now on.
func (mem *memory) end() {
	mem.mu.Lock()
	r := mem.now
	mem.wanted = false
	mem.drop(r)
	mem.mu.Unlock()
	if r != nil {
		<-r.filled
	}
}

// settle begins to load the objects if they should be in memory, are not, and fit. It
// is called whenever that may have changed.
func (mem *memory) settle() {
	mem.mu.Lock()
	defer mem.mu.Unlock()
	if mem.now != nil || !mem.wanted {
		return
	}
	mem.s.mu.RLock()
	defer mem.s.mu.RUnlock()
	m := mem.s.meta
	if m == nil || mem.s.health.err != nil || mem.s.life.released || mem.s.form.hides(m) || mem.s.ending() {
		return
	}
	size := mem.estimate(m)
	if !mem.s.db.objects.reserve(size) {
		return
	}
	r := newResident(mem.s, m)
	r.counted = size
	mem.now = r
	mem.s.life.goroutines.Go(func() {
		defer close(r.filled)
		m, err := mem.fill(r)
		mem.giveUp(r, m, err)
	})
}

// await returns once objects that are being loaded are in memory. Who reads all of
// them need not decode them again, and has the same ones as readers.
func (mem *memory) await() {
	mem.mu.RLock()
	r := mem.now
	mem.mu.RUnlock()
	if r != nil {
		<-r.filled
	}
}

// fill loads r from the file and has readers use it. m is the meta of what it has loaded.
func (mem *memory) fill(r *resident) (m *sourceMeta, err error) {
	err = mem.s.view(func(is *sourceMeta, src sourceTx) error {
		m = is
		if r.of != editionOf(m) {
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
		return mem.load(r, raws)
	})
	if err != nil {
		return m, err
	}
	mem.s.db.h.writeMu.Lock() // no commit is under way
	defer mem.s.db.h.writeMu.Unlock()
	m = mem.s.metaNow()
	mem.mu.Lock()
	defer mem.mu.Unlock()
	if mem.now != r {
		return m, nil
	}
	err = r.follow(r.waiting, m)
	r.waiting = nil
	switch {
	case errors.Is(err, errDisagrees):
		return m, fmt.Errorf("boltstore: %s: %w: the records are not those last committed: %d of %d",
			mem.s.name, ErrDamaged, r.digest.Count, m.Items.Count)
	case err != nil:
		return m, err
	}
	r.index(m)
	mem.served.Store(r)
	mem.s.reader.hot.clear()
	return m, nil
}

// load decodes records, within their transaction, unless all of them need too much room.
func (mem *memory) load(r *resident, raws []layout.Raw) error {
	room := mem.room(r)
	var size atomic.Int64
	found := make([]itemChange, len(raws))
	err := mem.s.reader.decodeEach(raws, func(i int, key string, rec *format.Record) error {
		switch {
		case mem.s.ending():
			return ErrClosed
		case size.Add(mem.slotSize(key, rec)) > room:
			return errOverBudget
		}
		obj, err := mem.s.reader.decode(key, rec, false)
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
func (s *source) ending() bool {
	select {
	case <-s.life.ended:
		return true
	case <-s.db.whileOpen.ctx.Done():
		return true
	default:
		return false
	}
}

// index lets readers find the indices that the file has whole in memory, too.
func (mem *memory) index() {
	mem.s.db.h.writeMu.Lock() // no commit is under way
	defer mem.s.db.h.writeMu.Unlock()
	m := mem.s.metaNow()
	mem.mu.Lock()
	defer mem.mu.Unlock()
	if r := mem.shown(); r != nil {
		r.index(m)
	}
}
