package informer

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubewake/kubewake/boltstore"
)

// TestDurableModel runs random programs, and compares a durable handler's belief with the
// server: changes, of which many are of few keys; answers that come late, or for an earlier
// call, or never; ends; crashes after any commit, with calls under way; another transform; a
// restore of etcd, and another cluster.
func TestDurableModel(t *testing.T) {
	programs, steps := 6, 120
	if testing.Short() {
		programs = 2
	}
	first := uint64(time.Now().UnixNano())
	if s := os.Getenv("KUBEWAKE_SEED"); s != "" {
		var err error
		if first, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for n := range uint64(programs) {
		seed := first + n
		t.Run(fmt.Sprint(seed), func(t *testing.T) { durableProgram(t, seed, steps) })
	}
}

// durableModel is one random program.
type durableModel struct {
	*world
	rnd  *rand.Rand
	b    *believer
	life *life
	form string // of the transform, "" without one
	keys int    // of which objects come and go
	revs []uint64
}

func durableProgram(t *testing.T, seed uint64, steps int) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	m := &durableModel{world: newWorld(t), rnd: rnd, b: newBeliever(t, seed), keys: []int{2, 12}[rnd.IntN(2)]}
	m.options = boltstore.Options{Window: time.Millisecond,
		FlushInterval: []time.Duration{time.Millisecond, time.Hour}[rnd.IntN(2)],
		JournalBytes:  int64(1 + rnd.IntN(3000))}
	for i := range rnd.IntN(30) {
		m.change(i)
	}
	m.begin()
	m.life.synced()
	for i := range steps {
		for range rnd.IntN(12) {
			m.change(i)
		}
		m.step()
	}
	m.b.mu.Lock()
	m.b.good = true
	m.b.mu.Unlock()
	m.quiet()
	hs, err := m.life.inf.store.Handlers()
	if err != nil || len(hs) != 1 {
		t.Fatal(hs, err)
	}
	m.life.end()
	m.b.compare(m.world)
	t.Log(m.b.counts)

	before := m.b.counts
	m.begin()
	m.quiet()
	if now := m.b.counts; now.told != before.told {
		t.Errorf("%d events told again after an orderly end, %d Resets", now.told-before.told, now.resets-before.resets)
	}
	m.life.end()
}

// quiet waits until the store equals the server and the handler has acknowledged all of it.
func (m *durableModel) quiet() {
	m.life.synced().equal()
	eventually(m.t, "up to the server's last change", func() bool { // others may have left no trace
		return m.life.inf.store.State().ResourceVersion == fmt.Sprint(m.sim.Revision())
	})
	eventually(m.t, "acknowledged", func() bool {
		m.b.answer(true)
		return m.life.inf.idle(m.life.only())
	})
}

func (m *durableModel) change(i int) {
	n := fmt.Sprint("o", m.rnd.IntN(m.keys))
	switch {
	case m.makes(n, i):
	case m.rnd.IntN(3) > 0:
		m.update(n, fmt.Sprint(i))
	default: // perhaps many objects under one key
		for again := m.rnd.IntN(2) == 0; again; again = m.rnd.IntN(3) > 0 {
			m.removes(n)
			m.makes(n, i)
		}
		m.removes(n)
	}
}

func (m *durableModel) makes(name string, i int) bool {
	o := cm(name, fmt.Sprint(i))
	if m.sim.Create(o) != nil {
		return false
	}
	if err := m.sim.Get(o); err != nil {
		m.t.Fatal(err)
	}
	m.b.created(o)
	return true
}

func (m *durableModel) removes(name string) {
	m.b.deleted("default/" + name)
	m.delete(name)
}

func (m *durableModel) step() {
	switch dice := m.rnd.IntN(40); {
	case dice < 4:
		m.life.equal().end()
		m.b.ended()
		m.maybeReform()
		m.begin()
	case dice < 8:
		m.crash()
	case dice == 8:
		m.restore()
	case dice == 9:
		m.anotherCluster()
	case dice < 20:
		m.revs = append(m.revs, m.sim.Revision())
	default:
		m.b.answer(false)
	}
}

func (m *durableModel) begin() {
	m.b.begin(m.form)
	form, n := m.form, m.b.life
	m.world.form = func(o *corev1.ConfigMap) { shape(o, form) }
	m.life = m.live(Options{handlerGrace: time.Nanosecond, TransformVersion: "form " + form,
		Transform: func(obj any) (any, error) {
			shape(obj.(*corev1.ConfigMap), form)
			return obj, nil
		}})
	handler := DurableHandlerFunc(func(_ context.Context, e Event) error { return m.b.handle(n, e) })
	if _, err := m.life.inf.AddDurableHandler("model", handler, DurableOptions{
		Workers:     1 + m.rnd.IntN(3),
		RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Microsecond, 20*time.Millisecond),
	}); err != nil {
		m.t.Fatal(err)
	}
	m.life.run()
}

func (m *durableModel) maybeReform() {
	if m.rnd.IntN(4) == 0 {
		m.form = fmt.Sprint(m.rnd.IntN(3))
	}
}

// crash goes on with the file as the last commit left it. Nothing is told between that commit
// and the end of the life.
func (m *durableModel) crash() {
	if m.rnd.IntN(2) == 0 {
		m.life.equal()
	}
	m.b.mu.Lock()
	snap, err := m.life.db.Snapshot()
	m.b.crashed()
	m.b.mu.Unlock()
	if err != nil {
		m.t.Fatal(err)
	}
	image, err := io.ReadAll(snap)
	if err = closed(snap, err); err != nil {
		m.t.Fatal(err)
	}
	m.life.end()
	m.path = filepath.Join(m.t.TempDir(), "crashed.db")
	if err := os.WriteFile(m.path, image, 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.maybeReform()
	m.begin()
}

// restore restores etcd while calls are under way, and waits until the informer has noticed:
// versions are given out again.
func (m *durableModel) restore() {
	m.life.synced().equal()
	for i := range m.keys {
		m.b.deleted(fmt.Sprint("default/o", i)) // perhaps
	}
	if len(m.revs) == 0 || m.sim.Rewind(m.revs[m.rnd.IntN(len(m.revs))]) != nil {
		return
	}
	m.revs = nil
	m.life.equal()
}

// anotherCluster has another cluster answer while calls are under way.
func (m *durableModel) anotherCluster() {
	m.b.another()
	if err := m.sim.Recreate(m.sim.Revision() - uint64(m.rnd.IntN(3))); err != nil {
		m.t.Fatal(err)
	}
	m.revs = nil
	for i := range 5 {
		m.change(i)
	}
	m.life.equal()
}
