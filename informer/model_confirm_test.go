package informer

import (
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
	s.cond.Broadcast()
}

// hold has watches begin without a bookmark, or all go on with one.
func (s *modelServer) hold(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = held
	s.marks++
	s.cond.Broadcast()
}

// confirmed is a life in which only a list can confirm: another type changes last, and
// bookmarks do not come. It begins after some changes. Once the informer has synced its
// store has what the server has, or what the watch has brought since.
func (m *model) confirmed(o op) {
	s := m.server
	clean := m.confirm == reflector.ConfirmList && !m.full && m.elsewhere == nil && len(m.own) == 0 && !m.faults.transform.Load() && !m.faults.index.Load()
	if clean {
		m.settle()
	}
	m.endOpen()
	m.check()
	for i := range o.n {
		s.change([]string{"update", "delete", "create", "recreate"}[(o.key+i)%4], o.key+i)
	}
	s.other()
	s.hold(true)
	m.start()
	if o.key&1 > 0 {
		s.change("delete", o.n)
		s.change("create", o.key)
		s.other()
	}
	patience := 20 * time.Millisecond
	if clean {
		patience = 20 * time.Second
	}
	synced := false
	select {
	case <-m.inf.HasSyncedChecker().Done():
		synced = true
	case <-time.After(patience):
	}
	if clean && !synced {
		m.t.Fatalf("no list has confirmed: %s", m.inf.State())
	}
	if synced && len(m.own) == 0 && o.key&1 == 0 {
		got := map[string]*corev1.ConfigMap{}
		for _, obj := range m.inf.GetStore().List() {
			got[obj.(*corev1.ConfigMap).Name] = obj.(*corev1.ConfigMap)
		}
		if _, why := sameMaps(s.objects(), got); why != "" {
			m.t.Fatalf("synced, and %s: %s", why, m.inf.State())
		}
	}
	s.hold(false)
}
