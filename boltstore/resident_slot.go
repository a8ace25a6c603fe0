package boltstore

import (
	"slices"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// slot is one record in memory, without its object.
type slot struct {
	hash         uint64 // of the record
	size, stored int64
	values       []format.IndexValues // the record's
	late         *lateValues
}

// lateValues are the values of an index that was added when the file did not have it.
type lateValues struct {
	name   string
	values []string
	next   *lateValues
}

// adding has the functions of indices that are being added and that the file does not
// have yet, and their values.
type adding struct {
	fns    cache.Indexers
	late   []lateValues // with room for all objects
	of     []*slot      // of those in late that were found ahead
	values []string
}

// callNew calls the functions of new indices for the objects that are in memory now. It needs
// no lock of the file, so the functions may wait for commits.
func (r *resident) callNew(fns cache.Indexers) *adding {
	m := r.s.metaNow()
	r.mu.RLock()
	objs, slots := make([]any, 0, len(r.slots)), make([]*slot, 0, len(r.slots))
	for obj, sl := range r.slots {
		objs, slots = append(objs, obj), append(slots, sl)
	}
	r.mu.RUnlock()
	n := len(fns) * len(objs)
	a := &adding{late: make([]lateValues, 0, n), of: make([]*slot, 0, n), values: make([]string, 0, n)}
	for name, fn := range fns {
		if r.s.indexing().built(m, name) {
			continue
		}
		for i := 0; i < len(objs); i++ { // goes on behind an object on which the function has ended its goroutine
			apart(func() {
				for ; i < len(objs); i++ {
					a.late = append(a.late, lateValues{name, a.call(fn, name, objs[i]), nil})
					a.of = append(a.of, slots[i])
				}
			})
		}
	}
	return a
}

// begin adds the indices of these functions. Values that were found ahead stay with their
// slots, which may be gone.
func (a *adding) begin(fns cache.Indexers) *adding {
	a.fns = fns
	for i, sl := range a.of {
		if l := &a.late[i]; fns[l.name] != nil {
			l.next, sl.late = sl.late, l
		}
	}
	a.of = nil
	return a
}

// add adds the values of an index to the slot. It calls the index's function unless that
// was done ahead.
func (a *adding) add(sl *slot, name string, obj any) []string {
	for l := sl.late; l != nil; l = l.next {
		if l.name == name {
			return l.values
		}
	}
	a.late = append(a.late, lateValues{name, a.call(a.fns[name], name, obj), sl.late})
	sl.late = &a.late[len(a.late)-1]
	return sl.late.values
}

func (a *adding) call(fn cache.IndexFunc, name string, obj any) []string {
	values, _ := indexed(name, fn, obj, func(v string) []string {
		a.values = append(a.values, v)
		return a.values[len(a.values)-1 : len(a.values) : len(a.values)]
	}) // the file's build notes what fails
	return values
}

func (s *Store) slotOf(key string, r *format.Record, stored int) *slot {
	return &slot{hash: format.HashRecord(key, r), size: s.slotSize(key, r), stored: int64(stored), values: r.Values}
}

func (sl *slot) valuesOf(name string) []string {
	for l := sl.late; l != nil; l = l.next {
		if l.name == name {
			return l.values
		}
	}
	for _, iv := range sl.values {
		if iv.Name == name {
			return iv.Values
		}
	}
	return nil
}

// keepLate keeps the late values of the slot before, but for some indices.
func (sl *slot) keepLate(was *slot, but []format.IndexValues) {
	for l := was.late; l != nil; l = l.next {
		if !has(but, l.name) {
			sl.late = &lateValues{l.name, l.values, sl.late}
		}
	}
}

// dropLate drops late values that the record has by now, too. It returns false if the
// record's values differ.
func (sl *slot) dropLate(name string) bool {
	for p := &sl.late; *p != nil; p = &(*p).next {
		if l := *p; l.name == name {
			*p = l.next
			return slices.Equal(l.values, sl.valuesOf(name))
		}
	}
	return true
}
