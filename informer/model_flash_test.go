package informer

import (
	"fmt"
	"strconv"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// flash is an object of which the server announces only the delete, as for one that came
// and went, or that a selector never let through.
type flash struct {
	uid types.UID
	// excused: it need not be told. Since then a list was served, which does not show it,
	// or the program's transform refused it.
	excused atomic.Bool
	// nth is how many deletes of its key there were before, gone how many there are.
	nth  int64
	gone *atomic.Int64
	rv   string
}

// keptOfKey is how many deletes of a key are told to a durable handler that is behind; of
// more than that, the first one and the last ones are.
const keptOfKey = mostDeletes

// flashed makes the server announce a flash, which all handlers must be told, or does
// nothing if there is an object under that key.
func (m *model) flashed(key int) {
	s := m.server
	s.mu.Lock()
	defer s.mu.Unlock()
	name := fmt.Sprint("o", key)
	if s.objs[name] != nil {
		return
	}
	s.uids++
	f := &flash{uid: types.UID(fmt.Sprint("flash", s.uids)), gone: s.gone(name)}
	f.nth, f.rv = f.gone.Load(), strconv.Itoa(s.rv+1)
	f.excused.Store(m.faults.transform.Load())
	for _, o := range m.observers {
		o.owe(name, f)
	}
	s.put(watch.Deleted, name, f.uid)
	s.flashes = append(s.flashes, f)
	s.cond.Broadcast()
}

// gone counts the deletes of a key.
func (s *modelServer) gone(name string) *atomic.Int64 {
	if s.deletes[name] == nil {
		s.deletes[name] = &atomic.Int64{}
	}
	return s.deletes[name]
}

// excuse says that untold flashes need not be told any more.
func (s *modelServer) excuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.excuseLocked()
}

func (s *modelServer) excuseLocked() {
	for _, f := range s.flashes {
		f.excused.Store(true)
	}
	s.flashes = nil
}

func (o *observer) owe(name string, f *flash) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.durable && !o.filled {
		return // its key becomes pending after the Reset, if the object is still there
	}
	if o.owed == nil {
		o.owed = map[string][]*flash{}
	}
	o.owed[name] = append(o.owed[name], f)
}

// flashTold notes the delete of an object.
func (o *observer) flashTold(obj *corev1.ConfigMap) {
	all := o.owed[obj.Name]
	for i, f := range all {
		if f.uid == obj.UID {
			o.owed[obj.Name] = append(all[:i:i], all[i+1:]...)
			return
		}
	}
}

// owes says which flash the observer was not told.
func (o *observer) owes() string {
	for name, all := range o.owed {
		for _, f := range all {
			n := f.gone.Load()
			if left := o.durable && n > f.nth+1 && n-o.settled[name] > keptOfKey; !left && !f.excused.Load() {
				return fmt.Sprintf("%s %s has gone at %s, delete %d of %d, which was not told: %q", name, f.uid, f.rv,
					f.nth+1, n, o.trace[name])
			}
		}
	}
	return ""
}

// hasSettled notes that the observer was told all deletes.
func (o *observer) hasSettled(s *modelServer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.settled == nil {
		o.settled = map[string]int64{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, n := range s.deletes {
		o.settled[name] = n.Load()
	}
	o.owed, o.filled = nil, true
}
