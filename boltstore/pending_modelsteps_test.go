package boltstore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// The steps of the random programs of TestPendingModel.

func stateOf(o *corev1.ConfigMap) string { return fmt.Sprint(o.UID, "@", o.ResourceVersion) }

// change changes the server, and returns what its watch shows.
func (m *pendingModel) change() (typ cache.DeltaType, o *corev1.ConfigMap) {
	key := fmt.Sprint("a/", m.rnd.IntN(6))
	m.rv++
	was := m.server[key]
	if was != nil && m.rnd.IntN(2) == 0 {
		o = was.DeepCopy()
		o.ResourceVersion = fmt.Sprint(m.rv)
		if m.rnd.IntN(2) == 0 {
			m.server[key] = o
			return cache.Updated, o
		}
		delete(m.server, key)
		return cache.Deleted, o
	}
	m.uid++ // new, or deleted and created again
	o = configMap("a", strings.TrimPrefix(key, "a/"), m.rv, map[string]string{"words": fmt.Sprint(m.rnd.IntN(3))})
	o.UID = types.UID(fmt.Sprint("uid", m.uid))
	m.server[key] = o
	return cache.Added, o
}

// events commits some events.
func (m *pendingModel) events() {
	b := &Batch{}
	for range 1 + m.rnd.IntN(4) {
		typ, o := m.change()
		c, err := m.s.Feed.Prepare(typ, o)
		m.must(err)
		b.Changes, b.ResourceVersion = append(b.Changes, c), o.ResourceVersion
	}
	m.p.put(b)
	m.s.wake(true)
	m.until("events", func() bool { return m.s.State().ResourceVersion == b.ResourceVersion })
}

// begin begins a list of what the server has. It is staged if commits are small.
func (m *pendingModel) begin() {
	m.rest = nil
	for _, key := range slices.Sorted(maps.Keys(m.server)) {
		m.rest = append(m.rest, m.server[key])
	}
	m.works(func() (err error) {
		m.list, err = m.s.Upstream.BeginRelist(RelistOptions{
			OnError: func(_ kruntime.Object, err error) { m.t.Error(err) }})
		return err
	})
}

// page lists some more, or ends the list.
func (m *pendingModel) page() {
	var err error
	if n := min(1+m.rnd.IntN(4), len(m.rest)); n > 0 {
		err = m.list.Page(m.rest[:n])
		m.rest = m.rest[n:]
	} else if _, err = m.list.Commit(fmt.Sprint(m.rv), m.clk.Now()); err == nil {
		m.list, m.missed = nil, false
		return
	}
	if err != nil {
		if !failed(err) {
			m.fatal(err)
		}
		m.list = nil
	}
}

func (m *pendingModel) relist() {
	for m.list != nil || m.missed {
		if m.list == nil {
			m.begin()
		}
		m.page()
	}
}

// another is another cluster at the same address.
func (m *pendingModel) another() {
	clear(m.server)
	m.rv = m.rnd.IntN(m.rv + 1)
	for range m.rnd.IntN(6) {
		m.change()
	}
	m.missed = true
	m.works(m.s.Upstream.Empty)
}

func (m *pendingModel) step() {
	said := func(what string, args ...any) { m.steps = append(m.steps, fmt.Sprint(append([]any{what}, args...)...)) }
	name := []string{"h1", "h2"}[m.rnd.IntN(2)]
	switch n := m.rnd.IntN(100); {
	case n < 25 && m.list != nil:
		said("page")
		m.page()
	case n < 25 && m.missed:
		said("begin a list")
		m.begin()
	case n < 25:
		said("events")
		m.events()
	case n < 30:
		if m.list == nil {
			said("miss events")
			for range 1 + m.rnd.IntN(10) {
				m.change()
			}
			m.missed = true
		}
	case n < 33:
		if m.list == nil {
			said("another list")
			m.missed = true
		}
	case n < 70:
		acknowledge := m.rnd.IntN(3) > 0
		said("tell ", name, " ", acknowledge)
		m.tell(m.worker(name), acknowledge)
	case n < 80:
		if w := m.workers[name]; w != nil && len(w.calls) > 0 {
			c := w.calls[m.rnd.IntN(len(w.calls))]
			said("acknowledge ", name, " ", c)
			m.acknowledge(w, c)
		}
	case n < 84:
		said("write acknowledgements")
		m.lately(m.rnd.IntN(3) == 0)
		_ = m.s.writeMarks()
		m.lately(false)
	case n < 87:
		said("time")
		m.clk.Step(time.Minute)
	case n < 89:
		said("fail")
		m.mu.Lock()
		m.fails = 1 + m.rnd.IntN(3)
		m.mu.Unlock()
	case n < 91:
		said("told")
		m.s.Delivery.SetTold(m.s.State().Seq)
	case n < 94:
		said("die")
		m.die(m.rnd.IntN(4) == 0)
	case n < 96:
		if w := m.workers[name]; w != nil {
			said("release ", name)
			m.works(w.h.Release)
			delete(m.workers, name)
		}
	case n < 97:
		if m.rnd.IntN(3) == 0 {
			said("remove ", name)
			delete(m.workers, name)
			m.works(func() error { return m.s.Delivery.Remove(name) })
		}
	case n < 98:
		if m.list == nil && m.rnd.IntN(3) == 0 {
			said("another cluster")
			m.another()
		}
	default:
		if m.list == nil {
			said("events of one key")
			m.fickle()
		}
	}
}

// fickle lets many objects come and go under one key.
func (m *pendingModel) fickle() {
	if m.missed {
		return
	}
	key := fmt.Sprint("a/", m.rnd.IntN(6))
	for range 4 + m.rnd.IntN(8) {
		if m.server[key] == nil {
			m.uid++
			m.server[key] = configMap("a", strings.TrimPrefix(key, "a/"), 0, nil)
			m.server[key].UID = types.UID(fmt.Sprint("uid", m.uid))
		}
		m.rv++
		o := m.server[key].DeepCopy()
		o.ResourceVersion = fmt.Sprint(m.rv)
		m.server[key] = o
		b := &Batch{ResourceVersion: fmt.Sprint(m.rv)}
		c, err := m.s.Feed.Prepare(cache.Updated, o)
		m.must(err)
		b.Changes = append(b.Changes, c)
		if m.rnd.IntN(4) > 0 {
			m.rv++
			o = o.DeepCopy()
			o.ResourceVersion = fmt.Sprint(m.rv)
			delete(m.server, key)
			c, err := m.s.Feed.Prepare(cache.Deleted, o)
			m.must(err)
			b.Changes, b.ResourceVersion = append(b.Changes, c), fmt.Sprint(m.rv)
		}
		m.p.put(b)
		m.s.wake(true)
		m.until("events of one key", func() bool { return m.s.State().ResourceVersion == b.ResourceVersion })
	}
}

// atRest lets the program come to rest, and compares.
func (m *pendingModel) atRest() {
	m.steps = append(m.steps, "rest")
	m.relist()
	for _, name := range []string{"h1", "h2"} {
		w := m.worker(name)
		m.until(name+" is told all that is pending", func() bool {
			for m.tell(w, true) {
			}
			m.works(m.s.writeMarks)
			return !w.h.Behind() && w.h.Length() == 0 && len(keysOf(m.t, w.h)) == 0
		})
		want := map[string]string{}
		for key, o := range m.server {
			want[key] = stateOf(o)
		}
		if !maps.Equal(w.world.objects, want) {
			m.fatal(name, " knows ", w.world.objects, ", and the server has ", want)
		}
		for uid, key := range w.world.owed {
			if o := m.server[key]; o == nil || string(o.UID) != uid {
				m.fatal(name, " was not told that ", uid, " of ", key, " is deleted")
			}
		}
	}
	if r, err := m.db.Check(); err != nil || !r.Sound() {
		m.fatal(r, err)
	}
}

// TestPendingModel runs random programs.
func TestPendingModel(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("KUBEWAKE_TEST_SEED"); given != "" {
		_, err := fmt.Sscan(given, &seed)
		must(t, err)
	}
	programs := 30
	if few() {
		programs = 10
	}
	for i := range uint64(programs) {
		t.Run(fmt.Sprint("seed ", seed+i), func(t *testing.T) {
			m := newPendingModel(t, rand.New(rand.NewPCG(seed+i, 0)))
			defer func() { m.s.Release(); _ = m.db.Close() }()
			for range 20 + m.rnd.IntN(150) {
				m.step()
				if m.rnd.IntN(60) > 0 {
					continue
				}
				m.atRest()
				if m.rnd.IntN(3) == 0 { // while nothing is pending
					m.steps = append(m.steps, "another cluster")
					m.another()
				}
			}
			m.atRest()
		})
	}
}
