package kubesim

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

// table holds the objects of one resource. Its fields are guarded by Server.mu.
type table struct {
	Resource
	kind       *kindCodec
	generation int64 // counts changes of the definition, of a custom resource

	entries  map[string]*entry
	sorted   []*entry // by key; stale while unsorted is set
	unsorted bool

	// events is in revision order. Watches may start from floor or later;
	// from window on, events lie in the window that WatchCacheSize bounds.
	// What lies before it serves only watches that already run.
	events  []*event
	window  int
	floor   uint64
	trimmed uint64        // revision of the newest event no longer in events
	changed chan struct{} // closed and replaced at each event
}

// entry is one key's versions in revision order, tombstones included.
type entry struct {
	key      string // "/namespace/name" or "/name"
	versions []*version
}

// event is one write. cur is nil for a deletion, prev for a creation.
type event struct {
	rv        uint64
	cur, prev *version
	gone      lazy[*version] // prev as a DELETED event shows it
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
		Resource: r,
		kind:     newKindCodec(r.GroupVersionKind),
		entries:  map[string]*entry{},
		floor:    rev,
		trimmed:  rev,
		changed:  make(chan struct{}),
	}
}

func (t *table) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: t.Group, Resource: t.Plural}
}

func (s *Server) tableByKind(gvk schema.GroupVersionKind) *table {
	for _, t := range s.tables {
		if t.GroupVersionKind == gvk {
			return t
		}
	}
	return nil
}

func (s *Server) tableByPath(gv schema.GroupVersion, plural string) *table {
	for _, t := range s.tables {
		if t.GroupVersion() == gv && t.Plural == plural {
			return t
		}
	}
	return nil
}

// current returns the newest version of key, or nil if there is none or it is
// deleted.
func (t *table) current(key string) *version {
	if e := t.entries[key]; e != nil {
		return live(e.versions[len(e.versions)-1])
	}
	return nil
}

func live(v *version) *version {
	if v == nil || v.deleted {
		return nil
	}
	return v
}

// at returns the entry's version in the state of revision rv, or nil.
func (e *entry) at(rv uint64) *version {
	for i := len(e.versions) - 1; i >= 0; i-- {
		if e.versions[i].rv <= rv {
			return live(e.versions[i])
		}
	}
	return nil
}

// scan calls f for each object below prefix ("" or "/namespace") from key from
// on, in the state of revision rv and in key order, until f returns false.
func (t *table) scan(prefix, from string, rv uint64, f func(key string, v *version) bool) {
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
		if v := e.at(rv); v != nil && !f(e.key, v) {
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
	ev := &event{rv: v.rv, cur: live(v)}
	if n := len(e.versions); n > 0 {
		ev.prev = live(e.versions[n-1])
		if ev.prev != nil {
			s.history = append(s.history, superseded{t, e, v.rv})
		}
	}
	e.versions = append(e.versions, v)
	if v.deleted {
		s.history = append(s.history, superseded{t, e, v.rv})
	}
	if len(s.history) > 2*s.opts.HistorySize {
		s.forget(len(s.history) - s.opts.HistorySize)
	}
	t.append(ev, s.opts.WatchCacheSize)
}

func (t *table) append(ev *event, size int) {
	t.events = append(t.events, ev)
	if len(t.events)-t.window > size {
		t.events[t.window].dropEncodings()
		t.window++
		t.floor = t.events[t.window].rv - 1
	}
	if t.window > size {
		t.trimmed = t.events[t.window-1].rv
		t.events = slices.Clone(t.events[t.window:])
		t.window = 0
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

// dropEncodings frees what can be computed again once an event is old.
func (ev *event) dropEncodings() {
	if ev.prev != nil {
		ev.prev.dropEncodings()
	}
	ev.gone.drop()
}

// after returns up to limit events newer than rv, or false if some are lost.
func (t *table) after(rv uint64, limit int) ([]*event, bool) {
	if rv < t.trimmed {
		return nil, false
	}
	i := sort.Search(len(t.events), func(i int) bool { return t.events[i].rv > rv })
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
	for _, t := range s.tables {
		t.sorted = slices.DeleteFunc(t.sorted, func(e *entry) bool { return len(e.versions) == 0 })
	}
	s.history = slices.Clone(s.history[n:])
}

// dropWindows makes every watch from before the present revision too old.
// Watches that run are not disturbed.
func (s *Server) dropWindows() {
	for _, t := range s.tables {
		t.window, t.floor = len(t.events), s.rev
	}
}

// truncate takes state and revision back to rv, which must not be compacted.
func (s *Server) truncate(rv uint64) {
	for _, t := range s.tables {
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

// selection is what a list or watch asks for.
type selection struct {
	prefix string // "" or "/namespace"
	name   string // "" is any
	labels labels.Selector
	fields fields.Selector
}

func (q *selection) matches(v *version) bool {
	if v == nil {
		return false
	}
	if q.prefix != "" && q.prefix[1:] != v.namespace || q.name != "" && q.name != v.name {
		return false
	}
	return (q.labels.Empty() || q.labels.Matches(v.labels)) && (q.fields.Empty() || q.fields.Matches(v.fields))
}

// view returns what a watch with this selection sees of the event: an object
// that leaves the selection is DELETED in its last matching state, with the
// revision of the event.
func (q *selection) view(t *table, ev *event) (watch.EventType, *version, error) {
	switch was, is := q.matches(ev.prev), q.matches(ev.cur); {
	case is && was:
		return watch.Modified, ev.cur, nil
	case is:
		return watch.Added, ev.cur, nil
	case was:
		v, err := ev.gone.get(func() (*version, error) { return t.kind.atRevision(ev.prev, ev.rv) })
		if err != nil {
			return "", nil, fmt.Errorf("delete %s/%s: %w", ev.prev.namespace, ev.prev.name, err)
		}
		return watch.Deleted, v, nil
	default:
		return "", nil, nil
	}
}
