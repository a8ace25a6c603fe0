package informer

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubewake/kubewake/reflector"
)

// other is a change of another type: no watch brings it.
func (s *modelServer) other() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv++
	s.log = append(s.log, watch.Event{})
	s.keepState()
	s.cond.Broadcast()
}

// hold makes watches begin without a bookmark, or lets all go on with one.
func (s *modelServer) hold(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
	s.marks++
	s.cond.Broadcast()
}

// stall makes watches bring nothing, or lets all go on.
func (s *modelServer) stall(stalled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = stalled
	s.cond.Broadcast()
}

// expire ends all watches, and refuses watches from earlier versions.
func (s *modelServer) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.excuseLocked() // a list follows
	s.forget()
}

// keepStates starts or stops keeping the server's states.
func (s *modelServer) keepStates(keep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.states = nil; keep {
		s.states = map[int]map[string]*corev1.ConfigMap{}
		s.keepState()
	}
}

func (s *modelServer) keepState() {
	if s.states != nil {
		s.states[s.rv] = maps.Clone(s.objs)
	}
}

// was returns the first version, from the given one on, at which the server had exactly
// these objects.
func (s *modelServer) was(got map[string]*corev1.ConfigMap, from int) (rv int, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rv := from; rv <= s.rv; rv++ {
		if state, kept := s.states[rv]; kept {
			if _, why = sameMaps(state, got); why == "" {
				return rv, ""
			}
		}
	}
	return from, fmt.Sprintf("no state since %d: at %d %s", from, s.rv, why)
}

// ghost is an object that comes and goes.
func (m *model) ghost(key, n int) {
	s := m.server
	for s.objects()[fmt.Sprint("o", key)] != nil {
		key += 16
	}
	if n&1 > 0 {
		m.flashed(key)
	}
	for _, do := range []string{"create", "update", "delete"} {
		s.change(do, key)
	}
}

// confirmed is a life in which only a list can confirm: another type changes last, and
// bookmarks do not come. It begins after some changes, after objects that came and went,
// or both. Once the informer has synced, all that readers see is as the server was at
// some time since the life began, and never an earlier state than before.
func (m *model) confirmed(o op) {
	s := m.server
	faulty := m.faults.transform.Load() || m.faults.index.Load()
	clean := m.confirm == reflector.ConfirmList && !m.full && m.elsewhere == nil && !faulty
	if clean && o.n < 4 {
		m.settle()
	}
	m.endOpen()
	m.check()
	ghosts, stalled := o.n&1 > 0, o.n&3 == 1
	for i := range o.n &^ 1 {
		if !stalled {
			s.change([]string{"update", "delete", "create", "recreate"}[(o.key+i)%4], o.key+i)
		}
	}
	for i := range o.n {
		if ghosts {
			m.ghost(o.key+i, o.n+i)
		}
	}
	s.other()
	s.hold(true)
	s.stall(stalled)
	s.keepStates(true)
	at, err := strconv.Atoi(s.version())
	if err != nil {
		m.t.Fatal(err)
	}
	m.start()
	switch {
	case o.key&3 == 1:
		s.change("delete", o.n)
		s.change("create", o.key)
		s.other()
	case o.key&3 == 3:
		m.replaced = true
		s.expire()
	}
	patience := 20 * time.Millisecond
	if clean = clean && (!stalled || o.n < 4 && o.key&3 != 1); clean {
		patience = 20 * time.Second
	}
	synced := false
	select {
	case <-m.inf.HasSyncedChecker().Done():
		synced = true
	case <-time.After(patience):
	}
	if clean && !synced {
		m.t.Fatalf("no list has confirmed %+v: %s", o, m.inf.State())
	}
	look := func() {
		if !synced || m.large || m.faults.transform.Load() {
			return
		}
		got := map[string]*corev1.ConfigMap{}
		for _, obj := range m.inf.GetStore().List() {
			got[obj.(*corev1.ConfigMap).Name] = obj.(*corev1.ConfigMap)
		}
		var why string
		if at, why = s.was(got, at); why != "" {
			m.t.Fatalf("synced, and %s: %s", why, m.inf.State())
		}
	}
	look()
	s.stall(false)
	for range 10 {
		time.Sleep(20 * time.Microsecond) // between two looks: nothing signals a step back, so each moment may show one
		look()
	}
	if o.key&4 > 0 && !m.replaced {
		m.replaced = true
		s.expire()
	}
	s.hold(false)
	for i := 0; i < 20 && m.inf.LastSyncResourceVersion() != s.version(); i++ {
		time.Sleep(20 * time.Microsecond) // between two looks: nothing signals a step back, so each moment may show one
		look()
	}
	look()
	s.keepStates(false)
}
