package informer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/sealtest"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"pgregory.net/rapid"
)

// op is one step of a program.
type op struct {
	do  string
	key int
	n   int
}

// weights of the steps: what often happens in a cluster, and what breaks.
var weights = []struct {
	do string
	n  int
}{
	{"create", 150}, {"delete", 120}, {"recreate", 60}, {"bookmark", 60}, {"resync", 10},
	{"stall", 12}, {"fail", 12}, {"later", 12}, {"go on", 30}, {"join", 5}, {"leave", 5}, {"join durable", 3}, {"forget durable", 3},
	{"settle", 8}, {"replace", 3}, {"crash", 6}, {"reopen", 3}, {"away", 3}, {"rewind", 2},
	{"compact", 6}, {"rotate", 2}, {"fill disk", 12}, {"free disk", 4},
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
	// What comes first is what a failure is shrunk to.
	return op{ops[rapid.IntRange(0, len(ops)-1).Draw(t, "do")], rapid.IntRange(0, 15).Draw(t, "key"), rapid.IntRange(0, 7).Draw(t, "n")}
}), 300, 700)

// TestModel runs random programs of all that can happen to a source, its file
// and its handlers, and holds what each handler has been told, over all lives,
// against the server. A program that fails is made smaller; rapid prints it and
// its seed. KUBEWAKE_MODEL says how many steps are taken in all.
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
				t.Run(fmt.Sprintf("%d.%d", n, i), func(t *testing.T) {
					dir := t.TempDir()
					runs := 0
					rapid.Check(t, func(rt *rapid.T) {
						if done() && !rt.Failed() {
							return
						}
						runs++
						p := runProgram(rt, filepath.Join(dir, strconv.Itoa(runs)))
						mu.Lock()
						defer mu.Unlock()
						steps += len(p)
						for _, o := range p {
							did[o.do]++
						}
					})
				})
			}
		})
	}
	beside.Wait()
	t.Logf("%d steps in %v: %v", steps, time.Since(began).Round(time.Millisecond), did)
}

// programs is how many run beside each other: each of them waits now and then.
const programs = 4

// runProgram draws a program and runs it on a file in dir, which is new.
func runProgram(t *rapid.T, dir string) []op {
	p := program.Draw(t, "program")
	// What happens to few keys happens to each of them often.
	keys := rapid.SampledFrom([]int{16, 3, 1}).Draw(t, "keys")
	for i := range p {
		p[i].key %= keys
	}
	m := &model{t: t, dir: dir, server: newModelServer()}
	m.small = rapid.Bool().Draw(t, "small bounds")
	m.sealed = rapid.Bool().Draw(t, "encrypted")
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
		return p // it goes with what is on it
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	return p
}

// model is a program under way.
type model struct {
	t      *rapid.T
	dir    string
	server *modelServer
	small  bool
	sealed bool // the file is encrypted
	disk   bool // the files are on a small disk of their own
	full   bool // that is full

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
}

func (m *model) run(p []op) {
	m.path = filepath.Join(m.dir, "0.db")
	m.plain, m.durable = m.observe(false), m.observe(true)
	m.start()
	defer m.end()
	for _, o := range p {
		m.step(o)
	}
	m.settle()
	m.reopen()
	m.settle()
}

func (m *model) observe(durable bool) *observer {
	o := &observer{durable: durable, there: map[string]*corev1.ConfigMap{}, last: map[types.UID]cache.DeltaType{}, seen: map[string]bool{}, acked: map[string]uint64{}, seqs: map[string]uint64{}, trace: map[string][]string{}, open: map[string]map[*delivery]bool{}, turns: map[string]turn{}}
	o.cond.L = &o.mu
	m.observers = append(m.observers, o)
	return o
}

func (m *model) start() {
	o := boltstore.Options{Durability: boltstore.Process, Window: time.Nanosecond, FlushInterval: 5 * time.Millisecond, CompactRatio: -1}
	io := Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}, HandlerGrace: time.Nanosecond,
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}}
	if m.sealed {
		o.Keyset = sealtest.Keyset()
	}
	if m.small {
		o.JournalBytes, o.HotBytes, io.BacklogBytes = 2000, 2000, 3000
	}
	var err error
	if m.db, err = boltstore.Open(m.path, o); err != nil {
		m.t.Fatal(err)
	}
	if m.db.SetAside() != nil {
		m.t.Fatal("set aside: ", m.db.SetAside())
	}
	if m.inf, err = NewSharedIndexInformer(m.db, m.server.listWatch(), &corev1.ConfigMap{}, io); err != nil {
		m.t.Fatal(err)
	}
	m.replaced = false
	if _, err := m.inf.AddEventHandler(m.plain.live()); err != nil {
		m.t.Fatal(err)
	}
	m.addDurable("first", m.durable)
	if m.second != nil {
		m.addDurable("second", m.second)
	}
	if m.late != nil {
		m.join()
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel, m.done = cancel, make(chan struct{})
	go func() { defer close(m.done); m.inf.RunWithContext(ctx) }()
}

func (m *model) addDurable(name string, o *observer) {
	d := DurableOptions{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Microsecond, time.Millisecond)}
	if m.small {
		d.MaxPending, d.Workers, d.StuckAfter = 5, 2, time.Millisecond
		if name == "second" {
			d.MaxPending = 24 // a key's are collapsed before
		}
	}
	if _, err := m.inf.AddDurableHandler(name, o.live(), d); err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) join() {
	var err error
	if m.lateReg, err = m.inf.AddEventHandler(m.late.live()); err != nil {
		m.t.Fatal(err)
	}
}

// end stops the life in order. On a full disk not everything can be written;
// that is told again.
func (m *model) end() {
	m.stop()
	if err := m.db.Close(); err != nil && !m.full {
		m.t.Fatal(err)
	}
	if err := m.free(); err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) free() error {
	if !m.full {
		return nil
	}
	m.full = false
	m.server.padded(0)
	return freeDisk(m.dir)
}

func (m *model) stop() {
	for _, o := range m.observers {
		o.behave("go on")
	}
	m.cancel()
	<-m.done
}

func (m *model) reopen() {
	m.end()
	m.check()
	m.start()
}

// crash goes on with the file as the last commit left it. What is told after
// that was never told.
func (m *model) crash() {
	for _, o := range m.observers {
		o.behave("freeze")
	}
	if err := m.free(); err != nil { // for the copy
		m.t.Fatal(err)
	}
	s, err := m.db.Snapshot()
	for _, o := range m.observers {
		o.die()
	}
	if err != nil {
		m.t.Fatal(err)
	}
	file, err := io.ReadAll(s)
	if err := errors.Join(err, s.Close()); err != nil {
		m.t.Fatal(err)
	}
	m.end()
	if err := os.Remove(m.path); err != nil {
		m.t.Fatal(err)
	}
	m.files++
	m.path = filepath.Join(m.dir, fmt.Sprint(m.files, ".db"))
	if err := os.WriteFile(m.path, file, 0o600); err != nil {
		m.t.Fatal(err)
	}
	m.start()
}

func (m *model) check() {
	o := boltstore.Options{ReadOnly: true}
	if m.sealed {
		o.Keyset = sealtest.Keyset()
	}
	db, err := boltstore.Open(m.path, o)
	if err != nil {
		m.t.Fatal(err)
	}
	defer db.Close()
	if r, err := db.Check(); err != nil || !r.Sound() {
		m.t.Fatalf("the file is not sound: %+v %v", r, err)
	}
}

func (m *model) step(o op) {
	s := m.server
	switch o.do {
	case "update", "create", "delete", "recreate":
		s.change(o.do, o.key)
	case "bookmark":
		s.bookmark()
	case "resync":
		m.resync()
	case "stall", "fail", "later", "go on":
		m.observers[o.n%len(m.observers)].behave(o.do)
	case "join":
		if m.late == nil {
			m.late = m.observe(false)
			m.join()
		}
	case "leave":
		if m.late != nil {
			m.late.behave("go on")
			if err := m.inf.RemoveEventHandler(m.lateReg); err != nil {
				m.t.Fatal(err)
			}
			m.forget(&m.late)
		}
	case "join durable":
		if m.second == nil && !m.full {
			m.second = m.observe(true)
			m.addDurable("second", m.second)
		}
	case "forget durable":
		if m.second != nil && !m.full {
			m.second.behave("go on")
			if err := m.inf.RemoveDurableHandler("second"); err != nil {
				m.t.Fatal(err)
			}
			m.forget(&m.second)
		}
	case "compact": // beside all that goes on
		if _, err := m.db.Compact(context.Background(), nil); err != nil && !m.full {
			m.t.Fatal(err)
		}
	case "rotate":
		if m.sealed && !m.full { // it would wait for a relist, and that for room
			if err := m.db.Rotate(); err != nil {
				m.t.Fatal(err)
			}
		}
	case "fill disk":
		if m.disk {
			if err := fillDisk(m.dir); err != nil {
				m.t.Fatal(err)
			}
			m.full = true
			s.padded(50 << 10) // what is free in the file is not enough
		}
	case "free disk":
		if err := m.free(); err != nil {
			m.t.Fatal(err)
		}
	case "settle":
		m.settle()
	case "replace": // events are missed, and too old to be had
		if !m.replaced {
			m.settle()
			m.replaced = true
			s.missed(o.key, 1+o.n)
		}
	case "crash":
		m.crash()
	case "reopen":
		m.reopen()
	case "away": // the server goes on meanwhile, and may forget
		m.end()
		s.missed(o.key, o.n)
		m.start()
	case "rewind":
		m.settle()
		m.end()
		s.rewind()
		m.start()
		m.settle()
	}
}

// resync is one that is due for the late handler or the first.
func (m *model) resync() {
	m.inf.mu.Lock()
	for l := range m.inf.listeners {
		l.mu.Lock()
		l.resyncWanted = true
		l.mu.Unlock()
	}
	j := m.inf.journal
	m.inf.mu.Unlock()
	if j != nil {
		_ = j.Resync() // closed at worst
	}
}

func (m *model) forget(o **observer) {
	for i, x := range m.observers {
		if x == *o {
			m.observers = append(m.observers[:i:i], m.observers[i+1:]...)
			break
		}
	}
	(*o).die()
	*o = nil
}

// settle waits until the store and all that the handlers believe are what the
// server has.
func (m *model) settle() {
	if err := m.free(); err != nil {
		m.t.Fatal(err)
	}
	for _, o := range m.observers {
		o.behave("go on")
	}
	want := m.server.objects()
	var why string
	deadline := time.After(20 * time.Second)
	for tick := time.NewTicker(100 * time.Microsecond); ; {
		if why = m.differs(want); why == "" {
			tick.Stop()
			break
		}
		select {
		case <-tick.C:
		case <-deadline:
			m.t.Fatalf("not settled: %s\n%s", why, m.state())
		}
	}
	for _, o := range m.observers {
		o.mu.Lock()
		faults := o.faults
		o.mu.Unlock()
		if len(faults) > 0 {
			m.t.Fatal(faults[0])
		}
	}
}

// state is what durable handlers are waiting for.
func (m *model) state() (s string) {
	m.inf.mu.Lock()
	defer m.inf.mu.Unlock()
	for d := range m.inf.durables {
		d.mu.Lock()
		s += fmt.Sprintf("%s: cursor %d of %d, mark %d, inherited to %d, replay %+v, parked %+v, shown %v, held %d, %d bytes, blocked %v, looking %v, ready %d, loads %d, retries %d, keys %d, reset %v %v\n",
			d.name, d.cursor, m.inf.backlog.last(), d.mark, d.inheritedTo, d.replay, d.parked, d.shown, d.held, d.bytes, d.blocked, d.looking, len(d.ready), len(d.loads), len(d.retries), len(d.keys), d.resetDue, d.resetting)
		for _, q := range d.keys {
			s += fmt.Sprintf("  %s: %d tasks, %d told, busy %v, again %v, waiting %v, loading %v\n", q.key, len(q.tasks), q.told, q.busy, q.again, q.waiting, q.loading)
		}
		d.mu.Unlock()
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
	if why := sameMaps(want, got); why != "" {
		return "the store: " + why
	}
	for i, o := range m.observers {
		if why := o.differs(want); why != "" {
			return fmt.Sprintf("observer %d (durable: %v): %s", i, o.durable, why)
		}
	}
	return ""
}

func sameMaps(want, got map[string]*corev1.ConfigMap) string {
	for name, o := range want {
		if g := got[name]; g == nil || g.ResourceVersion != o.ResourceVersion || !apiequality.Semantic.DeepEqual(o, g) {
			return fmt.Sprintf("%s: want %v, got %v", name, o, g)
		}
	}
	for name := range got {
		if want[name] == nil {
			return name + " is gone"
		}
	}
	return ""
}

// observer is a handler that keeps what it is told, over all lives, and finds
// fault with it.
type observer struct {
	durable bool

	mu     sync.Mutex
	cond   sync.Cond
	life   *teller
	mood   string
	faults []string
	there  map[string]*corev1.ConfigMap
	last   map[types.UID]cache.DeltaType // what it was last told of each object
	seen   map[string]bool               // versions
	acked  map[string]uint64             // in this life
	seqs   map[string]uint64             // last told
	trace  map[string][]string           // the last that it was told of each key

	// later are events to be acknowledged when it goes on, open those of each
	// key that were told since it was last told anew.
	later []Event
	open  map[string]map[*delivery]bool
	turns map[string]turn
}

func (o *observer) behave(how string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mood = how
	o.cond.Broadcast()
	if how != "go on" {
		return
	}
	for _, e := range o.later {
		e.Ack()
		delete(o.open[e.Key], e.delivery)
	}
	o.later = nil
}

// teller is an observer in one life.
type teller struct{ *observer }

func (o *observer) live() *teller {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mood, o.life = "go on", &teller{o}
	for name, t := range o.trace {
		o.trace[name] = append(t, "a new life")
	}
	clear(o.acked)
	clear(o.open)
	o.later = nil
	return o.life
}

func (o *observer) die() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.mood, o.life = "go on", nil
	o.cond.Broadcast()
}

// note keeps the last that was told of a key.
func (o *observer) note(typ cache.DeltaType, obj *corev1.ConfigMap, old any, e *Event) {
	s := fmt.Sprintf("%s %s %s", typ, obj.UID, obj.ResourceVersion)
	if p, ok := old.(*corev1.ConfigMap); ok {
		s += " from " + p.ResourceVersion
	}
	if e != nil {
		s += fmt.Sprintf(" at %d attempt %d initial %v %s %s, first %d parked %v more %v", e.Seq, e.Attempt, e.Initial, o.mood, e.delivery.d.name, e.delivery.t.first, e.delivery.t.parked, e.delivery.t.more)
	}
	t := append(o.trace[obj.Name], s)
	o.trace[obj.Name] = t[max(0, len(t)-100):]
}

func (o *observer) fault(format string, args ...any) {
	o.faults = append(o.faults, fmt.Sprintf(map[bool]string{true: "durable: ", false: "plain: "}[o.durable]+format, args...))
}

var errUnwilling = errors.New("not now")

func (t *teller) told(typ cache.DeltaType, obj, old any, e *Event) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for (t.mood == "stall" || t.mood == "freeze") && t.life == t {
		t.cond.Wait()
	}
	if t.life != t {
		return errUnwilling
	}
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	o, ok := obj.(*corev1.ConfigMap)
	if !ok {
		t.fault("%s with a %T", typ, obj)
		return nil
	}
	was := t.there[o.Name]
	t.note(typ, o, old, e)
	if prev, ok := old.(*corev1.ConfigMap); ok {
		if prev.UID != o.UID {
			t.fault("an update of %s between two objects", o.Name)
		}
		if !t.seen[string(prev.UID)+prev.ResourceVersion] {
			t.fault("%s %s is updated from %s, which was not told: %q", o.Name, o.UID, prev.ResourceVersion, t.trace[o.Name])
		}
	} else if typ == cache.Updated {
		t.fault("an update of %s from nothing", o.Name)
	}
	// A durable handler that has not acknowledged is told anew what came before.
	if again := e != nil && e.Seq < t.seqs[o.Name]; typ != cache.Deleted && was != nil && was.UID != o.UID && !again {
		t.fault("%s comes as %s, and the delete of %s was not told: %q", o.Name, o.UID, was.UID, t.trace[o.Name])
	}
	if e != nil && e.Seq < t.acked[o.Name] {
		t.fault("%s of %s at %d is told after %d was acknowledged: %q", typ, o.Name, e.Seq, t.acked[o.Name], t.trace[o.Name])
	}
	if e != nil && t.mood == "fail" {
		return errUnwilling // and it has seen nothing
	}
	if e != nil {
		if turn := (turn{e.delivery.q, e.delivery.turn}); t.turns[e.Key] != turn {
			delete(t.open, e.Key)
			t.turns[e.Key] = turn
		}
		t.seqs[o.Name] = e.Seq
	}
	t.last[o.UID], t.seen[string(o.UID)+o.ResourceVersion] = typ, true
	if typ == cache.Deleted {
		delete(t.there, o.Name)
	} else {
		t.there[o.Name] = o
	}
	switch {
	case e == nil:
	case t.mood == "later":
		if t.open[e.Key] == nil {
			t.open[e.Key] = map[*delivery]bool{}
		}
		t.open[e.Key][e.delivery] = true
		t.later = append(t.later, *e)
		return ErrAckLater
	case !e.delivery.t.more && len(t.open[e.Key]) == 0:
		t.acked[o.Name] = e.Seq
	}
	return nil
}

func (t *teller) OnAdd(obj any, _ bool) { _ = t.told(cache.Added, obj, nil, nil) }
func (t *teller) OnUpdate(old, obj any) { _ = t.told(cache.Updated, obj, old, nil) }
func (t *teller) OnDelete(obj any)      { _ = t.told(cache.Deleted, obj, nil, nil) }
func (t *teller) HandleEvent(_ context.Context, e Event) error {
	return t.told(e.Type, e.Object, e.Old(), &e)
}

// differs says what it was not told of that is there, or is gone.
func (o *observer) differs(want map[string]*corev1.ConfigMap) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if why := sameMaps(want, o.there); why != "" {
		return why
	}
	there := map[types.UID]bool{}
	for _, obj := range want {
		there[obj.UID] = true
	}
	for uid, typ := range o.last {
		switch {
		case there[uid]:
		case typ == cache.Deleted:
			delete(o.last, uid)
		default:
			return fmt.Sprintf("%s is gone, and was last told to be %s: %q", uid, typ, o.trace)
		}
	}
	return ""
}
