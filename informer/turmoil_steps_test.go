package informer

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/reflector"
)

func (m *turmoil) name(i int) (ns, name string) {
	return []string{"default", "web"}[i%2], fmt.Sprint("o", i)
}

func (m *turmoil) object(i int) *corev1.ConfigMap {
	ns, name := m.name(i)
	data := map[string]string{"data": fmt.Sprint(m.r.IntN(5), "-", m.sim.Revision()), "c": fmt.Sprint(m.cluster)}
	if m.r.IntN(5) == 0 { // some pages of the file
		data["large"] = strings.Repeat(data["data"]+" ", m.r.IntN(8000))
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Data: data}
}

func (m *turmoil) change() *corev1.ConfigMap {
	o := m.object(m.r.IntN(14))
	var err error
	switch m.r.IntN(5) {
	case 0:
		if err = m.sim.Delete(o); err == nil {
			return nil
		}
	case 1:
		_ = m.sim.Delete(o) // it may not be there
		err = m.sim.Create(o)
	default:
		if err = m.sim.Update(o); apierrors.IsNotFound(err) {
			err = m.sim.Create(o)
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		m.t.Fatal(err)
	}
	m.record(o)
	return o
}

func (m *turmoil) note() { m.revs = append(m.revs, m.sim.Revision()) }

// recreate makes another cluster answer. No request is under way: a repeated request by
// the transport could not be told from the first.
func (m *turmoil) recreate() {
	m.sim.SetBandwidth(0)
	after(time.Millisecond)
	m.rv += 100_000
	to := m.rv
	if m.r.IntN(3) == 0 {
		to = uint64(1 + m.r.IntN(3000))
	}
	m.cluster++
	m.say("cluster %d at %d", m.cluster, to)
	if err := m.sim.Recreate(to); err != nil {
		m.t.Fatal(err)
	}
	m.revs = nil
	for range m.r.IntN(12) {
		m.change()
	}
}

var nodes atomic.Int64

func (m *turmoil) node() {
	if err := m.sim.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n",
		nodes.Add(1))}}); err != nil {
		m.t.Fatal(err)
	}
}

// program runs a program of that many steps.
func (m *turmoil) program(steps int) {
	gr := schema.GroupResource{Resource: "configmaps"}
	m.pages.Store(-1)
	m.sim.FailNext(func(q *http.Request) bool {
		if !strings.Contains(q.URL.Path, "configmaps") {
			return false
		}
		if q.URL.Query().Get("watch") != "" {
			return m.watchFail.Load()
		}
		if q.URL.Query().Get("limit") == "3" && m.pages.Load() >= 0 {
			return m.pages.Add(-1) < 0 && func() bool { m.pages.Store(0); return true }()
		}
		return false
	}, 1<<30, func(w http.ResponseWriter, q *http.Request) {
		switch m.pageErr.Load() {
		case 0:
			panic(http.ErrAbortHandler)
		case 1:
			kubesim.Answer(apierrors.NewInternalError(errors.New("starting")))(w, q)
		default:
			kubesim.Answer(apierrors.NewResourceExpired("gone"))(w, q)
		}
	})
	m.sim.FailNext(func(q *http.Request) bool {
		return m.deny.Load() && strings.Contains(q.URL.Path, "configmaps")
	}, 1<<30, kubesim.Answer(apierrors.NewForbidden(gr, "", errors.New("no"))))
	m.sim.FailNext(func(q *http.Request) bool {
		return m.kube.Load() > 0 && strings.HasSuffix(q.URL.Path, "/kube-system")
	}, 1<<30, func(w http.ResponseWriter, q *http.Request) {
		switch m.kube.Load() {
		case 1:
			kubesim.Answer(apierrors.NewInternalError(errors.New("starting")))(w, q)
		default:
			kubesim.Answer(apierrors.NewNotFound(gr, "kube-system"))(w, q)
		}
	})
	m.linkFaults()
	m.options()
	m.start()
	for range steps {
		if m.faulty() {
			break
		}
		m.kubelet()
		m.step()
	}
	if m.db == nil {
		m.options()
		m.start()
	}
	if !m.faulty() {
		m.settle()
	}
	m.end()
	m.strangers()
}

func (m *turmoil) faulty() bool {
	m.strangers()
	m.logMu.Lock()
	defer m.logMu.Unlock()
	return len(m.faults) > 0
}

// live says whether all sources are live. The pages of a list under way may be of a later
// time than the server is restored to, and nothing shows that once the server has
// overtaken them.
func (m *turmoil) live() bool {
	return !slices.ContainsFunc(m.sources, func(s *tsource) bool { return s.inf.State().Phase != reflector.PhaseLive })
}

func (m *turmoil) step() {
	up := m.db != nil
	switch k := m.r.IntN(100 + m.troubles); {
	case k >= 100:
		m.trouble()
	case k < 25:
		for range 1 + m.r.IntN(4) {
			m.change()
		}
		m.note()
	case k < 30:
		m.node()
		m.note()
	case k < 45:
		after(time.Duration(m.r.IntN(3000)) * time.Millisecond)
	case k < 52:
		after(time.Duration(m.r.IntN(120)) * time.Second)
	case k < 54:
		after(time.Duration(m.r.IntN(40)) * time.Minute)
	case k < 58:
		m.recreate()
	case k < 62:
		if m.restores && len(m.revs) > 0 && (!m.noticed || up && m.live()) {
			to := m.revs[m.r.IntN(len(m.revs))]
			m.rewinds++
			m.say("rewind from %d to %d", m.sim.Revision(), to)
			if err := m.sim.Rewind(to); err != nil {
				m.say("%v", err)
				return
			}
			for _, s := range m.sources {
				s.durable.mu.Lock()
				s.durable.ahead = s.durable.ahead || m.unsynced
				s.durable.mu.Unlock()
			}
			m.revs = nil
			m.note()
			m.notice(to)
		}
	case k < 64:
		m.say("compact")
		m.sim.Compact()
	case k < 66:
		m.say("compact lists")
		m.sim.CompactLists()
	case k < 67:
		m.say("restart")
		if err := m.sim.Restart(kubesim.RestartOptions{Down: time.Duration(m.r.IntN(30)) * time.Second,
			Initializing: m.r.IntN(4)}); err != nil {
			m.t.Fatal(err)
		}
	case k < 68:
		m.say("drop connections")
		m.sim.DropConnections()
	case k < 72:
		n, e := int64(m.r.IntN(4)), int64(m.r.IntN(3))
		m.say("%d pages, then %d", n, e)
		m.pageErr.Store(e)
		m.pages.Store(n)
	case k < 74:
		m.say("deny")
		m.deny.Store(true)
		if m.r.IntN(2) == 0 {
			after(time.Duration(m.r.IntN(200)) * time.Second)
		}
	case k < 75 && m.r.IntN(3) == 0:
		m.kube.Store(1)
	case k < 75:
		m.watchFail.Store(true)
	case k < 76:
		m.transFails.Store(true)
	case k < 77:
		m.indexFails.Store(true)
	case k < 80:
		m.say("calm")
		m.calm()
	case k < 88:
		m.change()
	case k < 90:
		if up {
			m.fresh()
		}
	case k < 91:
		if up {
			m.say("compact the file")
			if _, err := m.db.Compact(context.Background(), nil); err != nil && !m.isFull() && !m.hurt {
				m.fatal(err)
			}
		}
	case k < 92:
		m.sim.SetBandwidth(1000 << m.r.IntN(6))
	case k < 93:
		s := m.sources[m.r.IntN(len(m.sources))]
		s.durable.mu.Lock()
		s.durable.fail = !s.durable.fail
		s.durable.mu.Unlock()
	case k < 97:
		if up {
			if m.r.IntN(2) == 0 {
				m.say("end")
				m.end()
			} else {
				m.die(false)
			}
		}
		if m.r.IntN(3) > 0 {
			m.options()
			m.start()
		}
	case k < 99:
		if !up {
			m.options()
			m.start()
		}
	default:
		if up {
			m.settle()
		}
	}
}
