package boltstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// storeModel takes random steps with one source. The server changes objects. Events and
// lists come, some of whose objects cannot be stored or indexed. The program writes
// before its informer runs, and the file is reopened, copied and converted. Writes fail, and processes end, in
// the middle of lists.
type storeModel struct {
	t     *testing.T
	rnd   *rand.Rand
	path  string
	o     Options
	db    *DB
	s     *Claimed
	p     *testProducer
	trace []string

	srv     server
	log     []modelEvent
	past    []server // after each event
	at      int      // events that the file has
	ahead   int      // events that a list under way has shown, or one that did not end
	rv, uid int

	refuse    map[string]bool // names that the transform refuses
	bad       atomic.Value    // the name on which index functions fail, which may be called at any time
	transform int
	late      []string // indices added at run time

	seq    uint64
	told   server          // what handlers were told
	hidden map[string]bool // told, and hidden by a transform since
	writes int             // that the program makes at the next start

	moments momentsModel

	fresh   bool                  // nothing was told yet: the first list is not journaled
	begun   map[string]*modelList // the first lists that the file may have pages of, by version
	owes    bool                  // the server was restored, and no list has shown it yet
	crashed []byte                // the file with which the next life begins, nil: the one that is there
}

type modelEvent struct {
	typ cache.DeltaType
	obj *corev1.ConfigMap
}

func (m *storeModel) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nafter\n%s", fmt.Sprintf(format, args...), strings.Join(m.trace[max(0, len(m.trace)-40):], "\n"))
}

func (m *storeModel) must(err error) {
	m.t.Helper()
	if err != nil {
		m.fail("%v", err)
	}
}

func (m *storeModel) say(format string, args ...any) {
	m.trace = append(m.trace, fmt.Sprintf(format, args...))
}

func modelText(o *corev1.ConfigMap) string {
	if o == nil {
		return "none"
	}
	return fmt.Sprint(o.UID, "@", o.ResourceVersion, " ", o.Data["words"])
}

func (m *storeModel) indexer(name string) cache.IndexFunc {
	return func(o any) ([]string, error) {
		cm := o.(*corev1.ConfigMap)
		if m.bad.Load() == cm.Name {
			return nil, errRefused
		}
		return []string{name + cm.ResourceVersion, strings.Fields(cm.Data["words"] + " x")[0]}, nil
	}
}

func (m *storeModel) open() {
	m.db = openTest(m.t, m.path, m.o)
	fns, versions := cache.Indexers{}, map[string]string{}
	for _, name := range append([]string{"odd"}, m.late...) {
		fns[name], versions[name] = m.indexer(name), "1"
	}
	m.s, m.p = claimTest(m.t, m.db, Claim{Indexers: fns, IndexVersions: versions}), &testProducer{}
	m.s.SetTransformVersion(fmt.Sprint(m.transform))
	m.s.Feed.ExpectProducer()
	for range m.writes {
		m.write()
	}
	m.writes = 0
	m.s.Feed.Attach(m.p)
}

func (m *storeModel) close() { closeTest(m.t, m.db) }

func (m *storeModel) name() string { return fmt.Sprint("o", m.rnd.IntN(6)) }

// change changes an object on the server.
func (m *storeModel) change() {
	m.rv++
	name := m.name()
	key := "ns/" + name
	was := m.srv[key]
	m.srv = maps.Clone(m.srv)
	next := configMap("ns", name, m.rv,
		map[string]string{"words": fmt.Sprint("v", m.rnd.IntN(1<<30)), "long": strings.Repeat("z", m.rnd.IntN(200))})
	e := modelEvent{cache.Updated, next}
	switch {
	case was == nil:
		m.uid++
		next.UID = types.UID(fmt.Sprint("u", m.uid))
		e.typ = cache.Added
	case m.rnd.IntN(3) == 0:
		gone := was.DeepCopy()
		gone.ResourceVersion = next.ResourceVersion
		e = modelEvent{cache.Deleted, gone}
	default:
		next.UID = was.UID
	}
	if e.typ == cache.Deleted {
		delete(m.srv, key)
	} else {
		m.srv[key] = next
	}
	m.log, m.past = append(m.log, e), append(m.past, m.srv)
	m.say("server: %s %s %s", e.typ, key, modelText(e.obj))
}

func (m *storeModel) state() server {
	if m.at == 0 {
		return server{}
	}
	return m.past[m.at-1]
}

// mayBe says whether the file may have that object at a key: the one as of its resume point,
// or one that a list has shown since.
func (m *storeModel) mayBe(key string, obj *corev1.ConfigMap) bool {
	if modelText(obj) == modelText(m.state()[key]) {
		return true
	}
	for _, later := range m.past[min(m.at, len(m.past)):min(max(m.at, m.ahead), len(m.past))] {
		if modelText(obj) == modelText(later[key]) {
			return m.s.metaNow().NewestPage != ""
		}
	}
	return false
}

// deliver commits some of the events that the file does not have.
func (m *storeModel) deliver() {
	if m.owes || !m.s.State().Synced || m.s.Outdated() != "" || m.s.Err() != nil {
		m.list()
		return
	}
	b := &Batch{}
	for range 1 + m.rnd.IntN(3) {
		if m.at == len(m.log) {
			break
		}
		e := m.log[m.at]
		m.at++
		if m.refuse[e.obj.Name] && e.typ != cache.Deleted {
			b.Changes = append(b.Changes, m.s.Feed.Unstored(e.obj, errRefused))
		} else {
			c, err := m.s.Feed.Prepare(e.typ, e.obj)
			m.must(err)
			b.Changes = append(b.Changes, c)
		}
		b.ResourceVersion = e.obj.ResourceVersion
		m.say("event: %s ns/%s %s refused %v bad %v", e.typ, e.obj.Name, modelText(e.obj), m.refuse[e.obj.Name],
			m.bad.Load())
	}
	if len(b.Changes) > 0 {
		m.p.put(b)
		m.s.wake(true)
		m.p.wait(m.t)
	}
}

// write is a write by the program.
func (m *storeModel) write() {
	key := "ns/" + m.name()
	var obj *corev1.ConfigMap
	if now := m.srv[key]; now != nil && m.rnd.IntN(3) > 0 {
		obj = now.DeepCopy() // the server's answer
	} else if len(m.log) > 0 {
		obj = m.log[m.rnd.IntN(len(m.log))].obj.DeepCopy()
	} else {
		return
	}
	key = "ns/" + obj.Name
	if m.rnd.IntN(4) == 0 {
		obj.Data["words"] = fmt.Sprint("mine", m.rnd.IntN(3))
	}
	if m.rnd.IntN(4) == 0 {
		m.say("write: delete %s", key)
		if err := m.s.Delete(obj); !errors.Is(err, errRefused) {
			m.must(err)
		}
		return
	}
	m.say("write: %s %s bad %v", key, modelText(obj), m.bad.Load())
	if err := m.s.Update(obj); !errors.Is(err, errRefused) {
		m.must(err)
	}
}

func (m *storeModel) addIndex() {
	if len(m.late) > 1 {
		return
	}
	name := fmt.Sprint("late", len(m.late))
	m.say("index %s", name)
	m.late = append(m.late, name)
	m.must(m.s.AddIndexers(cache.Indexers{name: m.indexer(name)}))
	if m.s.Outdated() == "" {
		waitBuilt(m.t, m.s, name) // what it cannot index is noted then
	}
}

// restore takes the server back.
func (m *storeModel) restore() {
	if len(m.log) == 0 {
		return
	}
	to := m.rnd.IntN(len(m.log))
	m.say("server restored to event %d", to)
	m.log, m.past = m.log[:to], m.past[:to]
	m.srv, m.rv = server{}, 0
	if to > 0 {
		m.srv = m.past[to-1]
		m.rv, _ = strconv.Atoi(m.log[to-1].obj.ResourceVersion)
	}
	for range m.rnd.IntN(3) {
		m.change()
	}
	m.relist(true)
}

func (m *storeModel) restart() {
	if m.crashed == nil && m.rnd.IntN(3) == 0 {
		m.crash()
	}
	m.close()
	if m.crashed != nil {
		m.path = testPath(m.t)
		m.must(os.WriteFile(m.path, m.crashed, 0o600))
		m.crashed = nil
	}
	m.o.Compression = []Compression{CompressionNone, CompressionZstd}[m.rnd.IntN(2)]
	if m.rnd.IntN(4) == 0 {
		m.transform++
	}
	if m.rnd.IntN(3) == 0 {
		m.o.Keyset, m.o.decrypt = sealtest.Keyset(), m.rnd.IntN(2) == 0
	}
	if m.rnd.IntN(3) == 0 && len(m.late) > 0 {
		m.late = m.late[:len(m.late)-1]
	}
	if m.rnd.IntN(3) == 0 {
		m.say("a new data key is due")
		changeHeader(m.t, m.path, keysDue)
	}
	m.say("restart: transform %d decrypt %v late %d bad %v", m.transform, m.o.decrypt, len(m.late), m.bad.Load())
	m.open()
}

// salvage begins another life, as if the file had been damaged.
func (m *storeModel) salvage() {
	m.say("salvage")
	before := m.s.Err()
	m.close()
	m.must(salvageAt(m.path, m.db.opts))
	m.open()
	if before == nil && m.s.Err() != nil {
		m.fail("not all was saved: %v", m.s.Err())
	}
}

func (m *storeModel) step() {
	switch n := m.rnd.IntN(100); {
	case n < 25:
		m.change()
	case n < 45:
		m.deliver()
	case n < 48:
		m.writes = 1 + m.rnd.IntN(3)
		m.restart()
	case n < 65:
		m.change()
		m.deliver()
	case n < 75:
		m.list()
	case n < 78:
		m.restore()
	case n < 82:
		m.restart()
	case n < 84:
		m.say("compact")
		_, err := m.db.Compact(context.Background(), nil)
		m.must(err)
	case n < 85:
		m.setAside()
	case n < 87:
		m.salvage()
	case n < 91:
		m.refuse = map[string]bool{}
		if m.rnd.IntN(2) == 0 {
			m.refuse[m.name()] = true
		}
		m.say("refused: %v", m.refuse)
	case n < 95:
		bad := ""
		if m.rnd.IntN(2) == 0 {
			bad = m.name()
		}
		m.bad.Store(bad)
		m.say("bad: %q", bad)
	case n < 97:
		m.say("index again, bad %v", m.bad.Load())
		indexAgain(m.t, m.s)
	default:
		m.addIndex()
	}
}

// TestStoreModel runs many short programs of random steps. Each prints its seed
// if it fails. KUBEWAKE_MODEL says how many steps are taken in all.
func TestStoreModel(t *testing.T) {
	steps, length := 1000, 150
	if s := os.Getenv("KUBEWAKE_MODEL"); s != "" {
		steps, _ = strconv.Atoi(s)
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("KUBEWAKE_SEED"); s != "" {
		seed, _ = strconv.ParseUint(s, 10, 64)
	}
	for n := range uint64(max(1, steps/length)) {
		if !t.Run(fmt.Sprint("seed ", seed+n), func(t *testing.T) {
			m := &storeModel{t: t, rnd: rand.New(rand.NewPCG(seed+n, 0)), path: testPath(t), srv: server{},
				told:   server{},
				refuse: map[string]bool{}, hidden: map[string]bool{}, fresh: true}
			m.o = Options{Durability: DurabilityProcess, Window: time.Nanosecond,
				ObjectMemory: []int64{-1, 1 << 20, 8000}[m.rnd.IntN(3)]}
			m.open()
			for range length {
				m.step()
				m.check()
				if m.rnd.IntN(30) == 0 {
					m.anotherBoot()
				}
				m.moments.check(m)
			}
		}) {
			return
		}
	}
}
