package boltstore

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// resident has all of a source's objects in memory, decoded, in client-go's own store. It
// follows the file: a commit changes it in one step, before anybody learns of the commit.
// Once it is dropped it does not change any more.
//
// client-go's store asks index functions for the values of the objects that come and go.
// These here answer with the values of the records: they neither fail nor call the
// program. They find an object's values by its pointer, which is at one key only.
type resident struct {
	s     *source
	of    edition
	store cache.ThreadSafeStoreWithTransaction
	// names are the indices that the file has whole, so that readers find them here. The
	// map is immutable.
	names atomic.Pointer[map[string]bool]
	// filled is closed once readers use it, or it was dropped before.
	filled chan struct{}

	// Once it is filled, the store's memory.mu guards these. Until then only fill uses them.
	slots  map[any]slot // by the pointers of the objects
	digest digest       // of the slots, as meta.Items is of the file's records
	size   int64        // about what the objects take in memory, in bytes

	// memory.mu guards these.
	counted int64        // what the budget counts
	waiting []itemChange // the commits while it is being filled
}

// edition says which contents are in a resident. Other contents need another resident.
type edition struct {
	contents contentState
	epoch    uint64
}

func editionOf(m *sourceMeta) edition { return edition{m.Contents, m.Epoch} }

// slot is one record in memory, without its object.
type slot struct {
	hash   uint64 // of the record
	size   int64
	values []format.IndexValues
}

func (mem *memory) slotOf(key string, r *format.Record) slot {
	return slot{hash: format.HashRecord(key, r), size: mem.slotSize(key, r), values: r.Values}
}

func (sl slot) valuesOf(name string) []string {
	for _, iv := range sl.values {
		if iv.Name == name {
			return iv.Values
		}
	}
	return nil
}

// itemChange is a change of the item that readers see at a key, on its way to memory.
type itemChange struct {
	key       string
	next      *format.Record // nil: the object is gone
	obj       any            // of next, nil if it was let go
	reindexed bool           // nothing but index values has changed
}

func newResident(s *source, m *sourceMeta) *resident {
	r := &resident{s: s, of: editionOf(m), filled: make(chan struct{}), slots: map[any]slot{}}
	r.names.Store(&map[string]bool{})
	r.store, _ = cache.NewThreadSafeStore(cache.Indexers{}, cache.Indices{}).(cache.ThreadSafeStoreWithTransaction)
	return r
}

// indexValues asks the store's index functions for the objects with any of these values.
type indexValues []string

func (r *resident) indexFunc(name string) cache.IndexFunc {
	return func(obj any) ([]string, error) {
		if values, ok := obj.(indexValues); ok {
			return values, nil
		}
		return r.slots[obj].valuesOf(name), nil
	}
}

// has says whether memory has the index.
func (r *resident) has(name string) bool { return (*r.names.Load())[name] }

// index lets readers find the indices that the file has whole, as of m. The store keeps
// those of before: they are right again once the file has them whole again.
func (r *resident) index(m *sourceMeta) {
	names, add, has := map[string]bool{}, cache.Indexers{}, r.store.GetIndexers()
	for name := range r.s.indices.set().fns {
		if !r.s.indices.built(m, name) {
			continue
		}
		names[name] = true
		if has[name] == nil {
			add[name] = r.indexFunc(name)
		}
	}
	_ = r.store.AddIndexers(add) // they are not there
	r.names.Store(&names)
}

// incomplete hides the indices in which the file, as of m, lacks objects.
func (r *resident) incomplete(m *sourceMeta) {
	names := maps.Clone(*r.names.Load())
	maps.DeleteFunc(names, func(name string, _ bool) bool { return !m.Indices[name].Complete })
	if len(names) < len(*r.names.Load()) {
		r.names.Store(&names)
	}
}

// at returns the object at the key and its slot.
func (r *resident) at(key string) (obj any, sl slot, ok bool) {
	if obj, ok = r.store.Get(key); ok {
		sl = r.slots[obj]
	}
	return obj, sl, ok
}

// Why a resident does not follow the file.
var (
	errOverBudget = errors.New("no room in memory")
	errDisagrees  = errors.New("the objects in memory are not those of the file")
	errOtherItems = errors.New("the contents of the file are others by now")
)

// follow brings memory in line with commits, in one step. m is the meta after them.
func (r *resident) follow(changes []itemChange, m *sourceMeta) error {
	if err := r.apply(changes); err != nil {
		return err
	}
	if m.Degraded == "" && r.digest != m.Items {
		return errDisagrees
	}
	return r.count()
}

// apply makes changes. An error leaves a resident that has to be dropped.
func (r *resident) apply(changes []itemChange) error {
	last := make(map[string]itemChange, len(changes))
	for _, c := range changes {
		if was, ok := last[c.key]; ok && c.reindexed {
			c.obj, c.reindexed = was.obj, was.reindexed
		}
		last[c.key] = c
	}
	txns, gone := make([]cache.ThreadSafeStoreTransaction, 0, len(last)), []any{}
	add := func(typ cache.TransactionType, key string, obj any) {
		txn := cache.Transaction{Type: typ, Object: obj}
		txns = append(txns, cache.ThreadSafeStoreTransaction{Transaction: txn, Key: key})
	}
	for key, c := range last {
		old, was, had := r.at(key)
		if had {
			r.digest.remove(was.hash)
			r.size -= was.size
		}
		if c.next == nil {
			if had {
				gone = append(gone, old)
				add(cache.TransactionTypeDelete, key, nil)
			}
			continue
		}
		sl := r.s.memory.slotOf(key, c.next)
		obj, err := r.object(c, sl)
		if err != nil {
			return err
		}
		r.digest.add(sl.hash)
		r.size += sl.size
		r.slots[obj] = sl
		if had && obj == old {
			continue
		}
		if had {
			gone = append(gone, old)
		}
		r.s.memory.mutated.AddObject(obj)
		add(cache.TransactionTypeUpdate, key, obj)
	}
	r.store.Transaction(txns...)
	for _, obj := range gone {
		delete(r.slots, obj)
	}
	return nil
}

// object is the object of a change that leads to a slot. A pointer stays only if its
// values in the store's indices stay; otherwise the object is decoded again, as it is if a
// program has stored one pointer twice.
func (r *resident) object(c itemChange, sl slot) (any, error) {
	if old, was, had := r.at(c.key); had && c.reindexed && r.sameValues(was, sl) {
		return old, nil
	}
	if reflect.TypeOf(c.obj) == r.s.coder.goType {
		if _, used := r.slots[c.obj]; !used {
			return c.obj, nil
		}
	}
	return r.s.reader.decodeNew(c.key, c.next)
}

func (r *resident) sameValues(a, b slot) bool {
	for name := range r.store.GetIndexers() {
		if !slices.Equal(a.valuesOf(name), b.valuesOf(name)) {
			return false
		}
	}
	return true
}
