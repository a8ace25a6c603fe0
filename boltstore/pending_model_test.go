package boltstore

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	corev1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/index"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// A random program changes a source by events and lists, and handles what is pending for two
// durable handlers. It dies between transactions and some of its transactions fail. What it
// must not do is lose a change: once it is at rest, each handler's world is that of the file,
// and the deletes of all objects that it was told of were told.

// workWorld is what a handler has made outside of the process. It survives the process.
type workWorld struct {
	objects map[string]string // states, by key
	owed    map[string]string // keys, by the UIDs of objects that were told and whose deletes must be told
}

func (w *workWorld) clear() { w.objects, w.owed = map[string]string{}, map[string]string{} }

// call is one of a handler's calls. It has been handled, and was perhaps not acknowledged yet.
type call struct {
	key     string
	receipt Receipt
	gone    []string // UIDs
}

// worker is a handler in one life of the program.
type worker struct {
	name  string
	h     *Handler
	world *workWorld
	calls []call          // of this registration; they can be acknowledged, also again
	gone  map[string]bool // UIDs of deletes that were acknowledged

	mu    sync.Mutex
	queue map[string]bool // keys, as in a workqueue
}

func (w *worker) changed(c HandlerChange) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Reset {
		w.queue, w.gone = map[string]bool{}, map[string]bool{}
	}
	for _, k := range c.Keys {
		w.queue[k.Key] = true
	}
}

// pop takes a key out of the queue.
func (w *worker) pop(rnd *rand.Rand) (key string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	keys := slices.Sorted(maps.Keys(w.queue))
	if len(keys) == 0 {
		return "", false
	}
	key = keys[rnd.IntN(len(keys))]
	delete(w.queue, key)
	return key, true
}

func (w *worker) push(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.queue[key] = true
}

// pendingModel is a program, its file, and the server.
type pendingModel struct {
	t     *testing.T
	rnd   *rand.Rand
	steps []string

	server map[string]*corev1.ConfigMap
	rv     int
	uid    int
	missed bool // the server has changed, and the file must be listed

	o       Options
	clk     *testingclock.FakeClock
	dir     string
	files   int
	db      *DB
	s       *Claimed
	p       *testProducer
	list    *Relist
	rest    []kruntime.Object // that are still to be listed
	workers map[string]*worker
	worlds  map[string]*workWorld

	mu    sync.Mutex
	fails int  // so many transactions fail
	late  bool // transactions fail at their end
}

func newPendingModel(t *testing.T, rnd *rand.Rand) *pendingModel {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	logger := logr.Discard()
	m := &pendingModel{t: t, rnd: rnd, clk: clk, dir: t.TempDir(), server: map[string]*corev1.ConfigMap{}, missed: true,
		workers: map[string]*worker{}, worlds: map[string]*workWorld{},
		o: Options{Clock: clk, Window: time.Nanosecond, FlushInterval: 1000 * time.Hour,
			Durability: DurabilityProcess, Logger: &logger,
			ObjectMemory: -1, fillKeys: 1 + rnd.IntN(3), compactRatio: -1}}
	if rnd.IntN(2) == 0 {
		m.o.JournalBytes = 1
	}
	switch rnd.IntN(4) {
	case 0:
		m.o.Keyset = sealtest.Keyset()
	case 1:
		m.o.Compression = CompressionZstd
	}
	m.open(filepath.Join(m.dir, "0.db"))
	return m
}

func (m *pendingModel) fatal(args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nafter %s", fmt.Sprint(args...), strings.Join(m.steps, ", "))
}

func (m *pendingModel) must(err error) {
	m.t.Helper()
	if err != nil {
		m.fatal(err)
	}
}

func (m *pendingModel) open(path string) {
	m.o.maxCommitBytes = []int{1, 1 << 20}[m.rnd.IntN(2)] // 1: all lists are staged
	db, err := Open(path, m.o)
	m.must(err)
	m.db, m.s, m.p, m.list = db, claimTest(m.t, db, Claim{}), &testProducer{}, nil
	m.s.Feed.Attach(m.p)
	db.h.setHook(func(tx *bolt.Tx) error {
		m.mu.Lock()
		defer m.mu.Unlock()
		switch {
		case m.late:
			return failLate(tx, db)
		case m.fails > 0:
			m.fails--
			return errors.New("the disk fails")
		}
		return nil
	})
	m.workers = map[string]*worker{}
}

// until lets time pass until something has happened.
func (m *pendingModel) until(what string, done func() bool) {
	m.t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); runtime.Gosched() {
		m.clk.Step(time.Second)
		if time.Now().After(end) {
			m.fatal("not in time: ", what)
		}
	}
}

// lately makes transactions fail at their end, or not any more.
func (m *pendingModel) lately(fail bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.late = fail
}

func failed(err error) bool {
	return strings.Contains(err.Error(), "the disk fails") || errors.Is(err, bolterrors.ErrIncompatibleValue)
}

// works retries what fails while transactions fail.
func (m *pendingModel) works(fn func() error) {
	m.t.Helper()
	for range 10 {
		if err := fn(); err == nil {
			return
		} else if !failed(err) {
			m.fatal(err)
		}
	}
	m.fatal("it goes on failing")
}

// die copies the file as it is, and goes on with the copy.
func (m *pendingModel) die(damage bool) {
	snap, err := m.db.Snapshot()
	m.must(err)
	b, err := io.ReadAll(snap)
	m.must(errors.Join(err, snap.Close()))
	m.files++
	path := filepath.Join(m.dir, fmt.Sprint(m.files, ".db"))
	m.must(os.WriteFile(path, b, 0o600))
	old := m.db
	m.mu.Lock()
	m.fails = 0
	m.mu.Unlock()
	m.s.Release() // what this writes is not in the copy
	m.must(old.Close())
	m.must(os.Remove(old.path))
	m.open(path)
	if damage {
		m.must(m.s.updateMeta(func(src sourceTx, meta *sourceMeta) error {
			for name := range meta.Handlers {
				if box := src.pending(name); box != nil && m.rnd.IntN(2) == 0 {
					k := fmt.Sprint("a/", m.rnd.IntN(6))
					return box.Delete(index.AppendKey(nil, k))
				}
			}
			return nil
		}))
	}
}

// worker returns a handler, which it registers if it is not.
func (m *pendingModel) worker(name string) *worker {
	if w := m.workers[name]; w != nil {
		return w
	}
	if m.worlds[name] == nil {
		m.worlds[name] = &workWorld{}
		m.worlds[name].clear()
	}
	w := &worker{name: name, world: m.worlds[name], queue: map[string]bool{}, gone: map[string]bool{}}
	m.works(func() (err error) { w.h, err = m.s.Delivery.Claim(name, w.changed); return err })
	for from := []byte(nil); ; {
		keys, next, err := w.h.Keys(from, 2)
		m.must(err)
		for _, k := range keys {
			w.push(k.Key)
		}
		if from = next; from == nil {
			m.workers[name] = w
			return w
		}
	}
}

// tell lets a handler handle one key, or a Reset. It says whether there was one.
func (m *pendingModel) tell(w *worker, acknowledge bool) bool {
	if r, owed := w.h.ResetOwed(); owed {
		w.world.clear()
		w.calls = append(w.calls, call{receipt: r})
		if acknowledge {
			w.h.Acknowledge("", r)
		}
		return true
	}
	key, ok := w.pop(m.rnd)
	if !ok {
		return false
	}
	settled := !w.h.Behind()
	p, ok, err := w.h.Read(key)
	if errors.Is(err, ErrNotYet) {
		w.push(key) // it is to be told after the list
		return false
	}
	m.must(err)
	if !ok {
		return true
	}
	c := call{key: key, receipt: p.Receipt}
	for _, g := range p.Deleted {
		uid := uidOf(g.Object)
		uid = strings.TrimPrefix(uid, "?")
		if w.gone[uid] {
			m.fatal(w.name, " is told again that ", uid, " of ", key, " is deleted")
		}
		if was, told := w.world.owed[uid]; told && was != key {
			m.fatal(uid, " was told as ", was)
		}
		delete(w.world.owed, uid)
		c.gone = append(c.gone, uid)
	}
	w.excuse(key, len(p.Deleted))
	delete(w.world.objects, key)
	if p.Object != nil {
		w.world.objects[key] = stateOf(p.Object.(*corev1.ConfigMap))
		w.world.owed[uidOf(p.Object)] = key
	}
	w.calls = append(w.calls, c)
	if !acknowledge {
		w.push(key)
		return true
	}
	m.acknowledge(w, c)
	if p, ok, err := w.h.Read(key); settled && !w.h.Behind() && (ok || err != nil) {
		m.fatal(w.name, " has acknowledged ", key, ", which is pending: ", p, err)
	}
	return true
}

// excuse takes the key's deletes as told if there are so many that those in the middle are not
// kept.
func (w *worker) excuse(key string, deletes int) {
	if deletes >= mostDeleted {
		maps.DeleteFunc(w.world.owed, func(_, k string) bool { return k == key })
	}
}

func (m *pendingModel) acknowledge(w *worker, c call) {
	m.must(m.s.view(func(_ *sourceMeta, src sourceTx) error {
		if raw := src.pending(w.name).Get(index.AppendKey(nil, c.key)); raw != nil {
			pk, err := parsePending(c.key, raw)
			if err != nil {
				return err
			}
			w.excuse(c.key, len(pk.Deleted)) // the acknowledgement may leave few
		}
		return nil
	}))
	w.h.Acknowledge(c.key, c.receipt)
	if c.receipt.reset == m.s.metaNow().Handlers[w.name].Reset {
		for _, uid := range c.gone {
			w.gone[uid] = true
		}
	}
}
