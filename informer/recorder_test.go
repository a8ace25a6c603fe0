package informer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// recorder is a handler that keeps the changes it is told, over several lives, and checks
// them.
type recorder struct {
	t  *testing.T
	mu sync.Mutex
	// there has the objects that exist according to the calls, by key.
	there map[string]*corev1.ConfigMap
	log   []string
}

func newRecorder(t *testing.T) *recorder {
	return &recorder{t: t, there: map[string]*corev1.ConfigMap{}}
}

func (r *recorder) OnAdd(obj any, initial bool) {
	o := obj.(*corev1.ConfigMap)
	r.told(map[bool]string{true: "initial ", false: "add "}[initial], o.Name, o)
}

func (r *recorder) OnUpdate(old, obj any) {
	a, b := old.(*corev1.ConfigMap), obj.(*corev1.ConfigMap)
	if a.Name != b.Name || a.UID != b.UID {
		r.t.Errorf("update of %s %s to %s %s", a.Name, a.UID, b.Name, b.UID)
	}
	r.told(map[bool]string{true: "resync ", false: "update "}[a.ResourceVersion == b.ResourceVersion], b.Name, b)
}

func (r *recorder) OnDelete(obj any) {
	kind := "delete "
	if d, unknown := obj.(cache.DeletedFinalStateUnknown); unknown {
		kind, obj = "missed ", d.Obj
	}
	o, ok := obj.(*corev1.ConfigMap)
	if !ok {
		r.t.Errorf("told of a delete with a %T", obj)
		return
	}
	r.told(kind, o.Name, nil)
}

func (r *recorder) told(kind, name string, obj *corev1.ConfigMap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if obj == nil {
		delete(r.there, name)
	} else {
		if old := r.there[name]; old != nil && old.UID != obj.UID {
			r.t.Errorf("%s came back with another UID and no delete between", name)
		}
		r.there[name] = obj
	}
	r.log = append(r.log, kind+name)
}

// take returns the changes told since the last take, sorted.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	log := r.log
	r.log = nil
	slices.Sort(log)
	return log
}

func (r *recorder) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.there))
}

// expect waits until exactly these changes have been told.
func (r *recorder) expect(what ...string) {
	r.t.Helper()
	slices.Sort(what)
	var got []string
	defer func() {
		if !slices.Equal(got, what) {
			r.t.Logf("told %q, want %q", got, what)
		}
	}()
	eventually(r.t, "told exactly the changes", func() bool {
		got = append(got, r.take()...)
		slices.Sort(got)
		return slices.Equal(got, what)
	})
}

// ledger is a durable handler that keeps the changes it is told, over several lives, and
// checks them.
type ledger struct {
	*recorder
	mu     sync.Mutex
	answer func(e Event) error // nil: acknowledge
	events []Event
}

func newLedger(t *testing.T) *ledger { return &ledger{recorder: newRecorder(t)} }

func (l *ledger) HandleEvent(_ context.Context, e Event) error {
	l.mu.Lock()
	l.events = append(l.events, e)
	answer := l.answer
	l.mu.Unlock()
	if e.Reset {
		l.recorder.mu.Lock()
		l.there = map[string]*corev1.ConfigMap{}
		l.log = append(l.log, "reset")
		l.recorder.mu.Unlock()
	}
	for _, gone := range e.Deleted {
		l.OnDelete(gone.Object)
	}
	if o, ok := e.Object.(*corev1.ConfigMap); ok {
		l.tell(e, o)
	}
	if answer != nil {
		return answer(e)
	}
	return nil
}

// tell is told the present object: as an update if it knows the object.
func (l *ledger) tell(e Event, o *corev1.ConfigMap) {
	if old, ok := e.Old.(*corev1.ConfigMap); ok && (old.Name != o.Name || old.UID != o.UID) {
		l.t.Errorf("old is %s %s, the object %s %s", old.Name, old.UID, o.Name, o.UID)
	}
	l.recorder.mu.Lock()
	known := l.there[o.Name] != nil
	l.recorder.mu.Unlock()
	if known && !e.Initial {
		l.told("update ", o.Name, o)
		return
	}
	l.OnAdd(o, e.Initial)
}

func (l *ledger) answers(fn func(e Event) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answer = fn
}

// taken returns the events since the last call.
func (l *ledger) taken() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := l.events
	l.events = nil
	return events
}

// takenOf waits for events of a key, and returns all since the last call.
func (l *ledger) takenOf(key string, n int) []Event {
	l.t.Helper()
	eventually(l.t, "told of "+key, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		count := 0
		for _, e := range l.events {
			if e.Key == key {
				count++
			}
		}
		return count >= n
	})
	return l.taken()
}

// each calls fn for the deletes of an event and then for its object.
func each(e Event, fn func(typ cache.DeltaType, obj any)) {
	for _, gone := range e.Deleted {
		fn(cache.Deleted, gone.Object)
	}
	switch {
	case e.Old != nil:
		fn(cache.Updated, e.Object)
	case e.Object != nil:
		fn(cache.Added, e.Object)
	}
}
