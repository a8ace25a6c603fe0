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
// have yet, and room for their values.
type adding struct {
	fns    cache.Indexers
	late   []lateValues
	values []string
}

func newAdding(fns cache.Indexers, objects int) *adding {
	n := len(fns) * objects
	return &adding{fns, make([]lateValues, 0, n), make([]string, 0, n)}
}

// add calls the function of an index and adds the values to the slot.
func (a *adding) add(sl *slot, name string, obj any) []string {
	values, _ := indexed(name, a.fns[name], obj, func(v string) []string {
		a.values = append(a.values, v)
		return a.values[len(a.values)-1 : len(a.values) : len(a.values)]
	}) // the file's build notes what fails
	a.late = append(a.late, lateValues{name, values, sl.late})
	sl.late = &a.late[len(a.late)-1]
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

// settled drops late values that the record has by now, too. It returns false if the
// record's values differ.
func (sl *slot) settled(name string) bool {
	for p := &sl.late; *p != nil; p = &(*p).next {
		if l := *p; l.name == name {
			*p = l.next
			return slices.Equal(l.values, sl.valuesOf(name))
		}
	}
	return true
}
