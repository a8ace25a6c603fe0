package informer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/reflector"
)

// op is one step of a program.
type op struct {
	do  string
	key int
	n   int
}

// weights are the weights of the steps: frequent events in a cluster, and failures.
var weights = []struct {
	do string
	n  int
}{

	{"create", 150}, {"delete", 120}, {"recreate", 60}, {"bookmark", 60}, {"resync", 10},

	{"stall", 12}, {"fail", 12}, {"later", 24}, {"answer", 60}, {"slow", 12}, {"go on", 30}, {"join", 5},
	{"leave", 5}, {"join durable", 6}, {"forget durable", 3}, {"add again", 6},

	{"settle", 8}, {"replace", 3}, {"crash", 6}, {"reopen", 5}, {"without", 4}, {"away", 4}, {"rewind", 2},
	{"remove all", 6},

	{"compact", 6}, {"rotate", 2}, {"fill disk", 12}, {"free disk", 4},

	{"refuse", 12}, {"unindex", 12}, {"cure", 24},

	{"store", 24},

	{"confirm", 24},

	{"flash", 40}, {"move file", 8}, {"file back", 12}, {"rest", 14},

	{"update", 500},
}

var ops = func() (all []string) {
	for _, w := range weights {
		for range w.n {
			all = append(all, w.do)
		}
	}
	// rapid draws small numbers more often.
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return append([]string{"update", "delete"}, all...)
}()

var program = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
	// A failure is shrunk to the first alternatives.
	return op{ops[rapid.IntRange(0, len(ops)-1).Draw(t, "do")], rapid.IntRange(0, 15).Draw(t, "key"),
		rapid.IntRange(0, 7).Draw(t, "n")}
}), 300, 700)

// TestModel runs random programs of everything that can happen to a source, its file and
// its handlers, and compares the changes that each handler has been told, over all lives,
// with the server. A program that fails is made smaller; rapid prints it and its seed.
// KUBEWAKE_MODEL says how many steps are taken in all.
func TestModel(t *testing.T) {
	want := 15_000
	if testing.Short() {
		want = 4_000
	}
	if s := os.Getenv("KUBEWAKE_MODEL"); s != "" {
		var err error
		if want, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	steps, did := 0, map[string]int{}
	done := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return steps >= want
	}
	began := time.Now()
	var beside sync.WaitGroup
	for n := range programs {
		beside.Go(func() {
			for i := 0; !done() && !t.Failed(); i++ {
				ran := false
				t.Run(fmt.Sprintf("%d.%d", n, i), func(t *testing.T) {
					ran = true
					dir := t.TempDir()
					runs, failed := 0, false
					rapid.Check(t, func(rt *rapid.T) {
						if done() && !failed { // one that failed is run again, and made smaller
							return
						}
						runs++
						passed := false
						defer func() { failed = failed || !passed || rt.Failed() }()
						p := runProgram(rt, filepath.Join(dir, strconv.Itoa(runs)))
						mu.Lock()
						defer mu.Unlock()
						steps += len(p)
						for _, o := range p {
							did[o.do]++
						}
						passed = true
					})
				})
				if !ran {
					return // -run asks for another one
				}
			}
		})
	}
	beside.Wait()
	t.Logf("%d steps in %v: %v", steps, time.Since(began).Round(time.Millisecond), did)
}

// programs is how many programs run at the same time: each of them waits now and then.
const programs = 4

// runProgram draws a program and runs it on a file in dir, which is new.
func runProgram(t *rapid.T, dir string) []op {
	p := program.Draw(t, "program")
	// With few keys, each of them goes through many changes.
	keys := rapid.SampledFrom([]int{16, 3, 1}).Draw(t, "keys")
	for i := range p {
		p[i].key %= keys
	}
	m := &model{t: t, dir: dir, server: newModelServer(), clock: newModelClock()}
	m.small = rapid.Bool().Draw(t, "small bounds")
	m.memory = rapid.SampledFrom([]int64{1 << 20, -1, 8000}).Draw(t, "memory for objects")
	m.page = rapid.SampledFrom([]int{pageObjects, 3}).Draw(t, "objects of a page")
	m.sealed = rapid.Bool().Draw(t, "encrypted")
	m.confirm = rapid.SampledFrom([]reflector.Confirm{reflector.ConfirmList, reflector.ConfirmBookmark}).Draw(t,
		"confirmed by")
	m.grace = rapid.SampledFrom([]time.Duration{time.Nanosecond, time.Hour}).Draw(t, "grace")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if m.disk = rapid.IntRange(0, 3).Draw(t, "small disk") == 3 && smallDisk(dir); m.disk {
		defer func() {
			if err := removeDisk(dir); err != nil {
				t.Fatal(err)
			}
		}()
	}
	m.run(p)
	if err := m.free(); err != nil {
		t.Fatal(err)
	}
	if m.disk {
		return p // it goes together with its contents
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	return p
}

// model is a program under way.
type model struct {
	t       *rapid.T
	dir     string
	server  *modelServer
	small   bool
	memory  int64             // Options.ObjectMemory: all objects, none, or some of the time
	page    int               // objects of a replay's page
	sealed  bool              // the file is encrypted
	confirm reflector.Confirm // what proves that nothing was missed
	disk    bool              // the files are on a small disk of their own
	full    bool              // that is full
	large   bool              // more may wait at the server than a queue holds back from readers, see fifo's hold
	grace   time.Duration

	faults   faults // of the program's functions; they outlive a life
	files    int
	path     string
	db       *boltstore.DB
	inf      *Informer
	cancel   context.CancelFunc
	done     chan struct{}
	replaced bool // in this life, which the source's backoff allows once

	plain     *observer // added first in each life
	late      *observer // comes and goes, nil while it is gone
	lateReg   cache.ResourceEventHandlerRegistration
	durable   *observer
	second    *observer // a durable name that comes and goes
	observers []*observer

	plainReg   cache.ResourceEventHandlerRegistration
	durableReg cache.ResourceEventHandlerRegistration
	without    bool // in the next life the second name is not registered
	absent     bool // in this one
	lost       bool // the end of the last life may have lost acknowledgements

	clock     *modelClock
	resting   func()       // what happens to the device before the next life
	elsewhere *replacement // while the file is not at its path

	writes  *op         // that the program makes before it runs the next life
	removed []types.UID // objects that it has deleted so
}

func (m *model) run(p []op) {
	m.path = filepath.Join(m.dir, "0.db")
	m.plain, m.durable = m.observe(false), m.observe(true)
	if err := seal.Generate(m.keyset()); err != nil {
		m.t.Fatal(err)
	}
	m.start()
	defer m.end()
	for _, o := range p {
		m.step(o)
	}
	m.settle()
	m.reopen()
	m.settle()
	m.nothingNoted()
}

// keyset is the file of the keyset of encrypted files.
func (m *model) keyset() string { return filepath.Join(m.dir, "keyset.json") }

func (m *model) observe(durable bool) *observer {
	o := newObserver(durable)
	o.programRemoves(m.removed)
	m.observers = append(m.observers, o)
	return o
}

// modelSource is the one source of the model's files.
var modelSource = boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}

func (m *model) fileOptions() boltstore.Options {
	o := boltstore.Options{Durability: boltstore.DurabilityProcess, Window: time.Nanosecond,
		FlushInterval: 5 * time.Millisecond, Clock: m.clock, ObjectMemory: m.memory}
	tuning.SetFile(&o, tuning.File{CompactRatio: -1})
	if m.sealed {
		o.Keyset = seal.File(m.keyset())
	}
	return o
}

func (m *model) start() {
	if m.resting != nil {
		m.resting()
		m.resting = nil
	}
	o := m.fileOptions()
	reads := tuned(tuning.Reflector{RetryUnstored: time.Millisecond})
	reads.Source, reads.Confirm = &modelSource, m.confirm
	io := Options{Reflector: reads, handlerGrace: m.grace,
		Indexers: m.faults.options().Indexers, IndexVersions: m.faults.options().IndexVersions,
		Transform: m.faults.options().Transform, TransformVersion: "1"}
	if m.small {
		o.JournalBytes, io.backlogBytes = 2000, 3000
		tuning.SetFile(&o, tuning.File{HotBytes: 2000})
	}
	var err error
	if m.db, err = boltstore.Open(m.path, o); err != nil {
		m.t.Fatal(err)
	}
	if m.db.AsidePaths() != nil {
		m.t.Fatal("set aside: ", m.db.AsidePaths())
	}
	if m.inf, err = NewSharedIndexInformer(m.db, m.server.listWatch(), &corev1.ConfigMap{}, io); err != nil {
		m.t.Fatal(err)
	}
	m.replaced, m.inf.page = false, m.page
	m.age()
	if m.plainReg, err = m.inf.AddEventHandler(m.plain.live(true)); err != nil {
		m.t.Fatal(err)
	}
	m.absent, m.without = m.without, false
	m.durableReg = m.addDurable("first", m.durable, m.lost)
	if m.second != nil && !m.absent {
		m.addDurable("second", m.second, m.lost)
	}
	m.lost = false
	if m.late != nil {
		m.join()
	}
	if m.writes != nil {
		m.store(*m.writes)
		m.writes = nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel, m.done = cancel, make(chan struct{})
	go func() { defer close(m.done); m.inf.RunWithContext(ctx) }()
}

func (m *model) addDurable(name string, o *observer, lost bool) cache.ResourceEventHandlerRegistration {
	d := DurableOptions{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Microsecond,
		time.Millisecond)}
	if m.small {
		d.Workers = 2
	}
	reg, err := m.inf.AddDurableHandler(name, o.live(lost), d)
	if err != nil {
		m.t.Fatal(err)
	}
	return reg
}

// addAgain stops the first durable handler, with its unacknowledged events, and adds it
// again.
func (m *model) addAgain() {
	m.durable.leave()
	if err := m.inf.RemoveEventHandler(m.durableReg); err != nil {
		m.t.Fatal(err)
	}
	<-m.durableReg.(*durableHandler).ShutdownChan()
	m.durableReg = m.addDurable("first", m.durable, false)
}

func (m *model) join() {
	var err error
	if m.lateReg, err = m.inf.AddEventHandler(m.late.live(true)); err != nil {
		m.t.Fatal(err)
	}
}

// end stops the life in order. On a full disk not everything can be written;
// that is told again.
func (m *model) end() {
	for _, o := range m.observers {
		o.behave("go on")
	}
	m.endOpen()
}

// endOpen is end while durable handlers have unacknowledged events.
func (m *model) endOpen() {
	for _, o := range m.observers {
		o.leave()
	}
	m.lost = m.lost || m.full
	m.cancel()
	<-m.done
	m.spoken()
	if err := m.db.Close(); err != nil && !m.full {
		m.t.Fatal(err)
	}
	if err := m.free(); err != nil {
		m.t.Fatal(err)
	}
	m.fileBack()
}

func (m *model) free() error {
	if !m.full {
		return nil
	}
	m.full = false
	m.server.padded(0)
	return freeDisk(m.dir)
}
