package boltstore

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// resident has all of a source's objects in memory, decoded, in client-go's own store.
// Readers use it once it is ready. It follows the file: a commit changes it in one step,
// before anybody learns of the commit.
//
// It is made of the file's records, never of the index functions. The store's index
// functions return the values of the records. So an object whose index function failed
// is without values, as in the file, and no user function runs here.
type resident struct {
	s     *Store
	of    edition
	store cache.ThreadSafeStoreWithTransaction
	names atomic.Pointer[map[string]bool] // the indices; the map is immutable

	// mu is held while memory changes. No lock of the store is taken under it.
	mu sync.RWMutex
	// slots are by the pointers of their objects, each of which is at one key.
	slots  map[any]*slot
	digest digest // of the slots, as meta.Items is of the file's records
	// size is about what the objects take in memory, stored what their records take in
	// the file, both in bytes.
	size, stored int64
	reserved     int64 // counted for records still to be loaded
	ready        bool  // readers use it, unless it was dropped
	dropped      bool
	// touched are the keys that commits have changed since loading began. The loader's
	// records of them may be older. nil once ready.
	touched map[string]struct{}
	// before has the objects of the previous contents. Objects whose records are the same
	// keep their pointers. nil once ready.
	before *resident
	// early has objects that were decoded before they were loaded. nil once ready.
	early  map[string]earlyObject
	adding *adding // otherwise nil
	// called has the indices whose values came from their functions. The values of all
	// others come from the records; these indices are in memory only while the file's are
	// complete. The handle's writeMu guards called.
	called map[string]bool
}

// edition says which contents are in a resident. Other contents need another resident.
type edition struct{ generation, epoch, file uint64 }

func (s *Store) edition(m *sourceMeta) edition {
	return edition{m.Generation, m.Epoch, s.db.replaced.Load()}
}

// itemChange is a change of the item that readers see at a key, on its way to memory.
type itemChange struct {
	key  string
	next *format.Record // nil: the object is gone
	raw  []byte         // of next
	obj  any            // of next, nil if it was let go
	// only is not nil if nothing but the values of these indices has changed.
	only []format.IndexValues
}

func newResident(s *Store, m *sourceMeta, before *resident) *resident {
	r := &resident{s: s, of: s.edition(m), before: before, slots: map[any]*slot{}, touched: map[string]struct{}{}, early: map[string]earlyObject{}, called: map[string]bool{}}
	fns, names := cache.Indexers{}, map[string]bool{}
	for name := range s.indexing().indexSet().fns {
		if s.indexing().built(m, name) {
			fns[name], names[name] = r.indexFunc(name), true
		}
	}
	r.names.Store(&names)
	r.store, _ = cache.NewThreadSafeStore(fns, cache.Indices{}).(cache.ThreadSafeStoreWithTransaction)
	return r
}

// indexValues asks the store's index functions for the objects with any of these values.
type indexValues []string

func (r *resident) indexFunc(name string) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		if values, ok := obj.(indexValues); ok {
			return values, nil
		}
		sl := r.slots[obj]
		if r.adding != nil && r.adding.fns[name] != nil {
			return r.adding.add(sl, name, obj), nil
		}
		return sl.valuesOf(name), nil
	}
}

// has says whether memory has the index. It does not while AddIndexers adds it.
func (r *resident) has(name string) bool { return (*r.names.Load())[name] }

// earlyObject is an object and the hash of its record.
type earlyObject struct {
	obj  any
	hash uint64
}

// known returns the object of exactly that record, nil if it is not in memory.
func (r *resident) known(key string, rec *format.Record) any {
	hash := format.HashRecord(key, rec)
	r.mu.RLock()
	obj, sl := r.at(key)
	before, early := r.before, r.early[key]
	r.mu.RUnlock()
	switch {
	case sl != nil && sl.hash == hash:
		return obj
	case early.obj != nil && early.hash == hash:
		return early.obj
	case before != nil:
		return before.known(key, rec)
	}
	return nil
}

// keep keeps the object of a record until it is loaded. It returns false if nothing is
// being loaded. The kept objects fit, since room for all objects has been reserved.
func (r *resident) keep(key string, rec *format.Record, obj any) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.early == nil || r.dropped {
		return false
	}
	r.early[key] = earlyObject{obj, format.HashRecord(key, rec)}
	return true
}

// at returns the object at the key and its slot, nil if there is none.
func (r *resident) at(key string) (any, *slot) {
	obj, _ := r.store.Get(key)
	return obj, r.slots[obj]
}

// errOverBudget: the objects do not fit the budget.
var errOverBudget = errors.New("no room in memory")

// apply brings memory in line with a commit, in one step. m is the meta after it.
func (r *resident) apply(changes []itemChange, m *sourceMeta) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dropped {
		return nil
	}
	last := map[string]int{}
	for i, c := range changes {
		last[c.key] = i
	}
	b := r.begin(len(last))
	for i, c := range changes {
		if last[c.key] != i {
			continue
		}
		if r.touched != nil {
			r.touched[c.key] = struct{}{}
		}
		if c.next == nil {
			b.delete(c.key)
			continue
		}
		sl := r.s.slotOf(c.key, c.next, len(c.raw))
		obj, err := r.object(c, sl)
		if err != nil {
			return err
		}
		b.put(c.key, obj, sl)
	}
	if err := b.end(); err != nil {
		return err
	}
	if r.ready && m.Degraded == "" && r.digest != m.Items {
		r.s.memory.disagreed.Add(1)
		return fmt.Errorf("boltstore: %s: memory has %d objects that are not the file's %d; they are loaded again", r.s.source, r.digest.Count, m.Items.Count)
	}
	return nil
}

// object is the object of a change that leads to a slot. Memory finds an object's index
// values by its pointer. So a pointer stays only if its values stay; otherwise the object
// is decoded again.
func (r *resident) object(c itemChange, sl *slot) (any, error) {
	if old, was := r.at(c.key); was != nil && c.only != nil {
		sl.keepLate(was, c.only)
		if r.sameValues(was, sl) {
			return old, nil
		}
	}
	if reflect.TypeOf(c.obj) == r.s.goType && r.slots[c.obj] == nil {
		return c.obj, nil
	}
	return r.s.reading().decodeNew(c.key, c.next)
}

func (r *resident) sameValues(a, b *slot) bool {
	for name := range r.store.GetIndexers() {
		if !slices.Equal(a.valuesOf(name), b.valuesOf(name)) {
			return false
		}
	}
	return true
}

// load adds records that were read from the file. It returns false if the resident was
// dropped.
func (r *resident) load(found []loaded) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dropped {
		return false, nil
	}
	b := r.begin(len(found))
	for _, f := range found {
		_, touched := r.touched[f.key]
		if _, there := r.store.Get(f.key); !touched && !there {
			obj, err := r.object(itemChange{key: f.key, next: f.rec, obj: f.obj}, f.slot)
			if err != nil {
				return false, err
			}
			b.put(f.key, obj, f.slot)
		}
		delete(r.early, f.key)
	}
	if r.before != nil {
		r.before.passed(found)
	}
	return true, b.end()
}

// passed drops objects whose keys the next contents have loaded, so that both together do
// not take twice the memory.
func (r *resident) passed(found []loaded) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.begin(len(found))
	for _, f := range found {
		b.delete(f.key)
	}
	if len(b.txns) > 0 {
		r.store.Transaction(b.txns...)
	}
	for _, obj := range b.gone {
		delete(r.slots, obj)
	}
}

// index adds the indices that it does not have. Their values are those of the records, or
// those that the functions return if the file, as of m, does not have them yet; ahead has
// most of these. No commit is under way. It returns false if a function's earlier values
// are not those of the file, or if a function has ended its goroutine: memory must then be
// loaded again.
func (r *resident) index(fns cache.Indexers, ahead *adding, m *sourceMeta) (same bool) {
	built := map[string]bool{}
	for name := range fns {
		built[name] = r.s.indexing().built(m, name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dropped {
		return true
	}
	has, known := maps.Clone(*r.names.Load()), r.store.GetIndexers()
	add, adding := cache.Indexers{}, cache.Indexers{}
	for name, fn := range fns {
		switch {
		case r.called[name] && built[name]:
			delete(r.called, name)
			for _, sl := range r.slots {
				if !sl.dropLate(name) {
					return false
				}
			}
			continue
		case has[name]:
			continue
		case built[name]:
		case known[name] != nil, !r.ready:
			continue // it is added once the file has it
		default:
			adding[name] = fn
			r.called[name] = true
		}
		has[name] = true
		if known[name] == nil {
			add[name] = r.indexFunc(name)
		}
	}
	r.adding = ahead.begin(adding)
	same = apart(func() { _ = r.store.AddIndexers(add) }) // they are not there
	r.adding = nil
	if same {
		r.names.Store(&has)
	}
	return same
}

// incomplete hides the indices in which the file, as of m, lacks objects.
func (r *resident) incomplete(m *sourceMeta) {
	var has map[string]bool
	for name := range *r.names.Load() {
		if r.called[name] || m.Indices[name].Complete {
			continue
		}
		if has == nil {
			has = maps.Clone(*r.names.Load())
		}
		delete(has, name)
	}
	if has != nil {
		r.names.Store(&has)
	}
}

// step is a step from one state of memory to the next. It has each key once.
type step struct {
	r            *resident
	txns         []cache.ThreadSafeStoreTransaction
	gone         []any
	size, stored int64 // more than before
}

func (r *resident) begin(n int) *step {
	return &step{r: r, txns: make([]cache.ThreadSafeStoreTransaction, 0, n)}
}

func (b *step) add(typ cache.TransactionType, key string, obj any) {
	b.txns = append(b.txns, cache.ThreadSafeStoreTransaction{Transaction: cache.Transaction{Type: typ, Object: obj}, Key: key})
}

// take subtracts the object at the key from the sums.
func (b *step) take(key string) (obj any, had bool) {
	obj, sl := b.r.at(key)
	if sl != nil {
		b.r.digest.remove(sl.hash)
		b.size, b.stored = b.size-sl.size, b.stored-sl.stored
	}
	return obj, sl != nil
}

func (b *step) put(key string, obj any, sl *slot) {
	old, had := b.take(key)
	b.r.digest.add(sl.hash)
	b.size, b.stored = b.size+sl.size, b.stored+sl.stored
	b.r.slots[obj] = sl
	if had && old == obj { // its values are the same
		return
	}
	if had {
		b.gone = append(b.gone, old)
	}
	b.r.s.memory.mutated.AddObject(obj)
	b.add(cache.TransactionTypeUpdate, key, obj)
}

func (b *step) delete(key string) {
	if old, had := b.take(key); had {
		b.gone = append(b.gone, old)
		b.add(cache.TransactionTypeDelete, key, nil)
	}
}

// end makes the step visible to readers.
func (b *step) end() error {
	r := b.r
	r.size, r.stored = r.size+b.size, r.stored+b.stored
	use := max(min(b.size, r.reserved), 0)
	r.reserved -= use
	if !r.s.db.objects.take(b.size - use) {
		return errOverBudget
	}
	if len(b.txns) > 0 {
		r.store.Transaction(b.txns...)
	}
	for _, obj := range b.gone {
		delete(r.slots, obj)
	}
	return nil
}
