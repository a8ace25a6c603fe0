package informer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/sealtest"
	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/reflector"
)

// tsource is one source of the file, with its handlers.
type tsource struct {
	ns             string
	inf            *Informer
	cancel         context.CancelFunc
	done           chan struct{}
	plain, durable *belief
	purge          bool
}

// turmoil is a program under way.
type turmoil struct {
	*world
	r                     *rand.Rand
	restores              bool
	began                 time.Time
	db                    *boltstore.DB
	sources               []*tsource
	sealed, small, packed bool
	memory                int64
	disk                  *tdisk
	older                 []byte // the file, some time ago
	synced                bool   // commits are, in this life
	unsynced              bool   // commits were lost since the sources were last as the server is
	hurt                  bool   // something may have been lost, of which handlers need not know
	maimed                bool   // that was so at some time
	boot                  int
	deaths                map[string]int
	damages               bool            // there is damage
	troubles              int             // of 100 more steps
	mounted               string          // the small disk, if it is one
	filled                bool            // that is full
	had                   map[string]bool // each object that the server has had
	strange               map[string]string
	cluster               int
	noticed               bool // restores are, before the server goes on
	rewinds               int
	kube                  atomic.Int64 // what kube-system is answered with
	audit                 time.Duration
	revs                  []uint64
	rv                    uint64
	life                  int
	files                 int
	trans                 int // version of the transform, 0: none
	index                 int
	confirm               reflector.Confirm
	metadata              bool
	log                   []string

	logMu      sync.Mutex
	faults     []string
	pages      atomic.Int64 // that are answered; negative: all
	pageErr    atomic.Int64
	deny       atomic.Bool
	lossy      atomic.Bool  // something may have been lost, ever
	torn       atomic.Int64 // bytes of each answer, 0: all
	busy       atomic.Int64 // what requests are answered with, 0: as they should be
	side       atomic.Int64 // 1, 2: this is so for one namespace, or for all but that
	watchFail  atomic.Bool
	transFails atomic.Bool
	indexFails atomic.Bool
}

func (m *turmoil) time() time.Duration { return time.Since(m.began).Round(time.Millisecond) }

func (m *turmoil) fault(format string, a ...any) {
	m.logMu.Lock()
	defer m.logMu.Unlock()
	m.faults = append(m.faults, fmt.Sprintf(format, a...))
}

func (m *turmoil) say(format string, a ...any) {
	m.logMu.Lock()
	defer m.logMu.Unlock()
	m.log = append(m.log, fmt.Sprintf("%v ", m.time())+fmt.Sprintf(format, a...))
}

func (m *turmoil) fileOptions() boltstore.Options {
	o := boltstore.Options{ObjectMemory: m.memory, FlushInterval: time.Second}
	tune := tuning.File{Op: m.disk.op, Boot: fmt.Sprint("boot ", m.boot)}
	if !m.synced {
		o.Durability = boltstore.DurabilityProcess
	}
	if m.sealed {
		o.Keyset = sealtest.Keyset()
	}
	if m.small {
		o.JournalBytes = 3000
		tune.MaxCommitBytes, tune.HotBytes = 4000, 2000
	}
	tuning.SetFile(&o, tune)
	if m.packed {
		o.Compression = boltstore.CompressionZstd
	}
	return o
}

func (m *turmoil) start() {
	m.life++
	m.say("life %d: transform %d, index %d, confirm %v, audit %v, synced %v, encrypted %v", m.life, m.trans, m.index,
		m.confirm, m.audit, m.synced, m.sealed)
	m.open()
	cfg := m.config()
	for _, s := range m.sources {
		ro := tuned(tuning.Reflector{PageSize: 3, Metadata: m.metadata})
		ro.AuditEvery, ro.Confirm = m.audit, m.confirm
		if s.purge {
			ro.PurgeDenied = true
		}
		io := Options{Reflector: ro, Indexers: cache.Indexers{}, IndexVersions: map[string]string{}}
		version := m.index
		io.Indexers["x"] = func(obj any) ([]string, error) {
			o := obj.(*corev1.ConfigMap)
			if m.indexFails.Load() && len(o.Name)%2 == 0 {
				return nil, errors.New("index fails")
			}
			return []string{fmt.Sprint(version, o.Data["data"])}, nil
		}
		io.IndexVersions["x"] = fmt.Sprint(version)
		if m.trans > 0 {
			trans := m.trans
			io.TransformVersion = fmt.Sprint(trans)
			io.Transform = func(obj any) (any, error) {
				if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					return d, nil
				}
				o := obj.(*corev1.ConfigMap)
				if m.transFails.Load() && strings.HasSuffix(o.Name, "1") {
					return nil, errors.New("transform fails")
				}
				o = o.DeepCopy()
				if o.Data == nil {
					o.Data = map[string]string{}
				}
				o.Data["trans"] = fmt.Sprint(trans)
				return o, nil
			}
		}
		lw := cache.NewListWatchFromClient(kubernetes.NewForConfigOrDie(cfg).CoreV1().RESTClient(), "configmaps",
			s.ns, fields.Everything())
		m.try("claim", func() (err error) {
			s.inf, err = NewSharedIndexInformer(m.db, lw, &corev1.ConfigMap{}, io)
			return err
		})
		for _, b := range []*belief{s.plain, s.durable} {
			b.mu.Lock()
			b.life, b.frozen, b.fail = m.life, m.disk.dead.Load(), false
			b.say("life %d", m.life)
			b.mu.Unlock()
			l := blife{b, m.life}
			m.try("add a handler", func() (err error) {
				if b.durable {
					_, err = s.inf.AddDurableHandler("d", l, DurableOptions{})
				} else {
					_, err = s.inf.AddEventHandler(l)
				}
				return err
			})
		}
		ctx, cancel := context.WithCancel(context.Background())
		s.cancel, s.done = cancel, make(chan struct{})
		go func() { defer close(s.done); s.inf.RunWithContext(ctx) }()
	}
}

func (m *turmoil) stop() {
	for _, s := range m.sources {
		s.cancel()
	}
	for _, s := range m.sources {
		<-s.done
	}
}

func (m *turmoil) end() {
	m.stop()
	if why := m.unsound(); why != "" && !m.hurt {
		m.fault("the file is not sound: %s", why)
	}
	if err := m.db.Close(); err != nil && !m.isFull() && !(m.hurt && errors.Is(err, boltstore.ErrDamaged)) {
		m.fault("close: %v", err)
	}
	m.db = nil
	if m.r.IntN(2) == 0 {
		var err error
		if m.older, err = os.ReadFile(m.path); err != nil {
			m.fatal(err)
		}
	}
}

// options draws the options of the next life.
func (m *turmoil) options() {
	if m.r.IntN(3) == 0 {
		m.trans = m.r.IntN(3)
	}
	if m.r.IntN(3) == 0 {
		m.index = m.r.IntN(3)
	}
	m.confirm = []reflector.Confirm{reflector.ConfirmAuto, reflector.ConfirmBookmark,
		reflector.ConfirmList}[m.r.IntN(3)]
	m.metadata = m.r.IntN(2) == 0
	if m.r.IntN(3) == 0 {
		m.synced = !m.synced
	}
	if m.r.IntN(6) == 0 {
		m.convert()
	}
	if !m.restores && m.audit > 0 && m.r.IntN(3) == 0 {
		m.audit = time.Duration(10+m.r.IntN(60)) * time.Minute
	}
}

// TestTurmoil: random programs of clusters that answer in turn, restores, refusals,
// broken lists, torn answers and functions that fail, over up to three
// sources of a file. Meanwhile processes and power end before and within operations on
// files, the disk is full and has room again, and the file is damaged. In the end cache,
// index and handlers equal the server, except for reported losses. Nothing was told or
// served that never existed.
//
// $KUBEWAKE_TURMOIL says how many programs there are, or for how long ("2h"): different
// ones each time. $KUBEWAKE_SEED says from which seed on.
func TestTurmoil(t *testing.T) {
	n, first, end := uint64(10), uint64(1), time.Time{}
	if testing.Short() {
		n = 3
	}
	if os.Getenv("KUBEWAKE_TURMOIL") != "" {
		first = uint64(time.Now().UnixNano())
	}
	for name, v := range map[string]*uint64{"KUBEWAKE_TURMOIL": &n, "KUBEWAKE_SEED": &first} {
		if s := os.Getenv(name); s != "" {
			if d, err := time.ParseDuration(s); err == nil && s != "0" {
				n, end = 1<<40, time.Now().Add(d)
			} else if _, err := fmt.Sscan(s, v); err != nil {
				t.Fatal(name, err)
			}
		}
	}
	bubble(t, func(t *testing.T, w *world) {})
	deaths := map[string]int{}
	defer func() { t.Logf("from seed %d: %v", first, deaths) }()
	for seed := first; seed < first+n && (end.IsZero() || time.Now().Before(end)) && !t.Failed(); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 7))
			synctest.Test(t, func(t *testing.T) {
				so := kubesim.Options{HistorySize: 100_000, InitialRV: 1000, NoBookmarks: r.IntN(6) == 0}
				sim := kubesim.New(so)
				if err := sim.StartPipes(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(sim.Close)
				m := &turmoil{world: &world{t: t, sim: sim}, r: r, began: time.Now(), rv: 100_000, deaths: deaths,
					had: map[string]bool{}, strange: map[string]string{}}
				m.place(t.TempDir())
				m.restores = r.IntN(2) == 0
				if m.restores || r.IntN(2) == 0 {
					m.audit = 30 * time.Minute
				}
				if m.restores && r.IntN(2) == 0 {
					m.noticed, m.audit = true, 0
				}
				m.small, m.packed = r.IntN(2) == 0, r.IntN(4) == 0
				m.sealed = r.IntN(3) == 0
				m.memory = []int64{0, -1, 3000}[r.IntN(3)]
				m.synced, m.damages, m.troubles = r.IntN(2) == 0, r.IntN(2) == 0, []int{15, 30, 100}[r.IntN(3)]
				for i := range 1 + r.IntN(3) {
					s := &tsource{purge: r.IntN(3) == 0, ns: []string{"", "web", "default"}[i]}
					for _, d := range []bool{false, true} {
						b := &belief{m: m, s: s, durable: d, name: fmt.Sprintf("source %d durable %v", i, d),
							there: map[string]*corev1.ConfigMap{}, gone: map[types.UID]int{},
							excused: map[types.UID]bool{}}
						b.cond.L = &b.mu
						if d {
							s.durable = b
						} else {
							s.plain = b
						}
					}
					m.sources = append(m.sources, s)
				}
				for range r.IntN(14) {
					m.change()
				}
				m.note()
				m.program(120)
				deaths["programs"]++
				if len(m.faults) > 0 {
					t.Errorf("%s\nserver %+v, %s", strings.Join(m.faults, "\n"), so, m.story())
				}
			})
		})
	}
}
