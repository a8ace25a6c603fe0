package informer

import (
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/kubewake/kubewake/boltstore"
)

func (m *model) check() {
	o := m.fileOptions()
	o.ReadOnly = true
	db, err := boltstore.Open(m.path, o)
	if err != nil {
		m.t.Fatal(err)
	}
	defer db.Close()
	if r, err := db.Check(); err != nil || !r.Sound() {
		m.t.Fatalf("the file is not sound: %+v %v", r, err)
	}
}

// settle waits, as long as there is progress, until the store and the handlers' beliefs
// equal the server.
func (m *model) settle() {
	m.faults.cure()
	if err := m.free(); err != nil {
		m.t.Fatal(err)
	}
	for _, o := range m.observers {
		o.behave("go on")
	}
	want := m.server.objects()
	var why string
	done, began := m.progress(), time.Now()
	for end := began.Add(5 * time.Minute); ; time.Sleep(100 * time.Microsecond) { // between two looks at all of them
		if why = m.differs(want); why == "" {
			m.large = false
			break
		}
		now := time.Now()
		if p := m.progress(); p != done {
			done, began = p, now
		}
		if now.Sub(began) > 20*time.Second || now.After(end) {
			m.t.Fatalf("not settled: %s\n%s", why, m.state())
		}
	}
	if m.inf.HasSynced() {
		if err := m.inf.GetStore().Add(cm("o1")); !errors.Is(err, boltstore.ErrFed) {
			m.t.Fatal("a write while the informer runs: ", err)
		}
	}
	for _, o := range m.observers {
		if !m.absent || o != m.second {
			o.hasSettled(m.server)
		}
		o.mu.Lock()
		faults := o.faults
		o.mu.Unlock()
		if len(faults) > 0 {
			m.t.Fatal(faults[0])
		}
	}
}

// progress changes with the store and with each event that is told.
func (m *model) progress() string {
	p := m.inf.LastSyncResourceVersion()
	for _, o := range m.observers {
		o.mu.Lock()
		p += fmt.Sprint(" ", o.calls)
		o.mu.Unlock()
	}
	return p
}

// state says what the durable handlers are waiting for.
func (m *model) state() (s string) {
	m.inf.mu.Lock()
	defer m.inf.mu.Unlock()
	for d := range m.inf.durables {
		s += fmt.Sprintf("at %d: %+v, walk due %v, unread %t, Reset owed %v\n",
			m.inf.backlog.Last(), d.lag(), d.walkDue, d.unread, d.keys[""] != nil)
	}
	return s
}

func (m *model) differs(want map[string]*corev1.ConfigMap) string {
	if rv := m.server.version(); m.inf.LastSyncResourceVersion() != rv {
		return fmt.Sprintf("at version %s, the server at %s", m.inf.LastSyncResourceVersion(), rv)
	}
	got := map[string]*corev1.ConfigMap{}
	for _, obj := range m.inf.GetStore().List() {
		o := obj.(*corev1.ConfigMap)
		got[o.Name] = o
	}
	if _, why := sameMaps(want, got); why != "" {
		return "the store: " + why
	}
	for i, o := range m.observers {
		if m.absent && o == m.second {
			continue
		}
		if why := o.differs(want); why != "" {
			return fmt.Sprintf("observer %d (durable: %v): %s", i, o.durable, why)
		}
	}
	return ""
}

func sameMaps(want, got map[string]*corev1.ConfigMap) (name, why string) {
	for name, o := range want {
		if g := got[name]; g == nil || g.ResourceVersion != o.ResourceVersion || !apiequality.Semantic.DeepEqual(o, g) {
			return name, fmt.Sprintf("%s: want %v, got %v", name, o, g)
		}
	}
	for name := range got {
		if want[name] == nil {
			return name, name + " is gone"
		}
	}
	return "", ""
}
