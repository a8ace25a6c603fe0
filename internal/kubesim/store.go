package kubesim

import (
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// table holds the objects of one resource. Its fields are guarded by Server.mu.
type table struct {
	*kubeapi.Type
	generation int64 // counts changes of the definition, of a custom resource

	entries  map[string]*entry
	sorted   []*entry // by key; stale while unsorted is set
	unsorted bool

	// events is in revision order. Watches may start from floor or later; from window on,
	// events lie in the window that WatchCacheSize bounds. Events before it serve only
	// watches that already run.
	events  []*kubeapi.Change
	window  int
	floor   uint64
	trimmed uint64        // revision of the newest event no longer in events
	changed chan struct{} // closed and replaced at each event
}

// tables are all tables and their types.
type tables struct {
	all   []*table
	types []*kubeapi.Type
}

func tablesOf(all []*table) *tables {
	ts := &tables{all: all}
	for _, t := range all {
		ts.types = append(ts.types, t.Type)
	}
	return ts
}

// entry is one key's versions in revision order, tombstones included.
type entry struct {
	key      string // "/namespace/name" or "/name"
	versions []*version
}

// version is one state of an entry: an object, or nil for a tombstone.
type version struct {
	rv  uint64
	obj *kubeapi.Object
}

// superseded is a version that is no longer an object's newest since revision
// at, or a tombstone.
type superseded struct {
	t  *table
	e  *entry
	at uint64
}

func newTable(r Resource, rev uint64) *table {
	return &table{
		Type:    kubeapi.NewType(r, "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"),
		entries: map[string]*entry{},
		floor:   rev,
		trimmed: rev,
		changed: make(chan struct{}),
	}
}

func (s *Server) tableByKind(gvk schema.GroupVersionKind) *table {
	for _, t := range s.store.Load().all {
		if t.GroupVersionKind == gvk {
			return t
		}
	}
	return nil
}

func (s *Server) tableOfType(typ *kubeapi.Type) *table {
	for _, t := range s.store.Load().all {
		if t.GroupVersion() == typ.GroupVersion() && t.Plural == typ.Plural { // it may have been defined again
			return t
		}
	}
	return nil
}

// current returns the newest version of key, or nil if there is none or it is
// deleted.
func (t *table) current(key string) *kubeapi.Object {
	if e := t.entries[key]; e != nil {
		return e.versions[len(e.versions)-1].obj
	}
	return nil
}

// at returns the entry's object in the state of revision rv, or nil.
func (e *entry) at(rv uint64) *kubeapi.Object {
	for i := len(e.versions) - 1; i >= 0; i-- {
		if e.versions[i].rv <= rv {
			return e.versions[i].obj
		}
	}
	return nil
}

// scan calls f for each object below prefix ("" or "/namespace") from key from
// on, in the state of revision rv and in key order, until f returns false.
func (t *table) scan(prefix, from string, rv uint64, f func(key string, o *kubeapi.Object) bool) {
	if t.unsorted {
		slices.SortFunc(t.sorted, func(a, b *entry) int { return strings.Compare(a.key, b.key) })
		t.unsorted = false
	}
	prefix += "/"
	from = max(from, prefix)
	i := sort.Search(len(t.sorted), func(i int) bool { return t.sorted[i].key >= from })
	for _, e := range t.sorted[i:] {
		if !strings.HasPrefix(e.key, prefix) {
			return
		}
		if o := e.at(rv); o != nil && !f(e.key, o) {
			return
		}
	}
}

// commit makes v the newest version of key and tells the watches. v.rv must be
// the revision after s.rev.
func (s *Server) commit(t *table, key string, v *version) {
	e := t.entries[key]
	if e == nil {
		e = &entry{key: key}
		t.entries[key] = e
		if n := len(t.sorted); n > 0 && t.sorted[n-1].key > key {
			t.unsorted = true
		}
		t.sorted = append(t.sorted, e)
	}
	s.rev = v.rv
	ev := &kubeapi.Change{Version: v.rv, Cur: v.obj}
	if n := len(e.versions); n > 0 {
		ev.Prev = e.versions[n-1].obj
		if ev.Prev != nil {
			s.history = append(s.history, superseded{t, e, v.rv})
		}
	}
	e.versions = append(e.versions, v)
	if v.obj == nil {
		s.history = append(s.history, superseded{t, e, v.rv})
	}
	if len(s.history) > 2*s.opts.HistorySize {
		s.forget(len(s.history) - s.opts.HistorySize)
	}
	t.append(ev, s.opts.WatchCacheSize)
}

func (t *table) append(ev *kubeapi.Change, size int) {
	t.events = append(t.events, ev)
	if len(t.events)-t.window > size {
		t.events[t.window].DropEncodings()
		t.window++
		t.floor = t.events[t.window].Version - 1
	}
	if t.window > size {
		t.trimmed = t.events[t.window-1].Version
		t.events = slices.Clone(t.events[t.window:])
		t.window = 0
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// after returns up to limit events newer than rv, or false if some are lost.
func (t *table) after(rv uint64, limit int) ([]*kubeapi.Change, bool) {
	if rv < t.trimmed {
		return nil, false
	}
	i := sort.Search(len(t.events), func(i int) bool { return t.events[i].Version > rv })
	return t.events[i:min(len(t.events), i+limit)], true
}

// forget drops the n oldest superseded versions, and with them every state
// before the revision at which the last of them was replaced.
func (s *Server) forget(n int) {
	for _, h := range s.history[:n] {
		s.compacted = max(s.compacted, h.at)
		h.e.versions[0] = nil
		h.e.versions = h.e.versions[1:]
		if len(h.e.versions) == 0 {
			delete(h.t.entries, h.e.key)
		}
	}
	for _, t := range s.store.Load().all {
		t.sorted = slices.DeleteFunc(t.sorted, func(e *entry) bool { return len(e.versions) == 0 })
	}
	s.history = slices.Clone(s.history[n:])
}

// dropWindows makes every watch from before the present revision too old.
// Watches that run are not disturbed.
func (s *Server) dropWindows() {
	for _, t := range s.store.Load().all {
		t.window, t.floor = len(t.events), s.rev
	}
}

// truncate takes state and revision back to rv, which must not be compacted.
func (s *Server) truncate(rv uint64) {
	for _, t := range s.store.Load().all {
		for key, e := range t.entries {
			i := sort.Search(len(e.versions), func(i int) bool { return e.versions[i].rv > rv })
			clear(e.versions[i:])
			e.versions = e.versions[:i]
			if i == 0 {
				delete(t.entries, key)
			}
		}
		t.sorted = slices.DeleteFunc(t.sorted, func(e *entry) bool { return len(e.versions) == 0 })
		t.events, t.window, t.floor, t.trimmed = nil, 0, rv, rv
	}
	s.history = slices.DeleteFunc(s.history, func(h superseded) bool { return h.at > rv })
	s.rev = rv
}
