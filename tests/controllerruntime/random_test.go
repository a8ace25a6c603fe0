package controllerruntime

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestCachesAtRandom: random programs get the same answers and errors from a cache over
// the file as from a stock one beside it, and their handlers know the same objects. The
// programs add and remove handlers, informers and indices before and after the start,
// lose the link, and begin again on the same file, some with other options or without a
// link. Whoever had handlers of a list is told of each delete, also of those between lives.
//
// $KUBEWAKE_PROGRAMS says how many programs there are, $KUBEWAKE_SEED from which seed on.
func TestCachesAtRandom(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil // one of them sleeps until a time outside the bubble
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	first, programs := randomSeeds(20)
	warmUp(t)
	for seed := first; seed < first+programs; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { randomProgram(t, seed) })
		})
	}
}

// randomSeeds returns the first seed, and how many there are.
func randomSeeds(n uint64) (first, programs uint64) {
	if testing.Short() {
		n /= 4
	}
	first, programs = 1, n
	if n, err := strconv.ParseUint(os.Getenv("KUBEWAKE_PROGRAMS"), 10, 64); err == nil {
		programs = n
	}
	if n, err := strconv.ParseUint(os.Getenv("KUBEWAKE_SEED"), 10, 64); err == nil {
		first = n
	}
	return first, programs
}

// warmUp makes things that exist once in the process and must not belong to a bubble.
func warmUp(t *testing.T) {
	t.Helper()
	p := newProgram(t, 0)
	p.begin()
	p.startBoth()
	for _, s := range p.sides {
		for _, k := range randomKinds {
			inf, err := s.GetInformer(t.Context(), k.one())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := inf.AddEventHandler(toolscache.ResourceEventHandlerFuncs{}); err != nil {
				t.Fatal(err)
			}
		}
		// otherwise the changes may come with the first list, and not into journals
		if !s.WaitForCacheSync(t.Context()) {
			t.Fatal("not synced")
		}
	}
	before := p.written()
	for range 100 {
		p.change(p.r)
	}
	eventually(t, "the caches have the changes", func() bool {
		for _, k := range randomKinds {
			var lists [2]string
			for i, s := range p.sides {
				l := k.list()
				err := s.List(t.Context(), l)
				lists[i] = sorted(l, err)
			}
			if lists[0] != lists[1] {
				return false
			}
		}
		return p.written() > before // into journals
	})
	p.stop()
	p.end()
	p.sim.Close()
}

// written is how many changes the file has for handlers.
func (p *program) written() (n uint64) {
	for _, inf := range p.kept {
		n += inf.Store().State().Seq
	}
	return n
}

// program is a random program that uses two caches in the same way.
type program struct {
	t      *testing.T
	r      *rand.Rand
	sim    *kubesim.Server
	mapper meta.RESTMapper
	path   string

	mu      sync.Mutex
	changes int
	story   []string
	stacks  []byte // when an informer last went without the file

	faults atomic.Int32 // that made requests fail
	failed atomic.Bool  // a request has, since the caches last settled

	sides   [2]*randomSide  // the stock cache, and ours
	choices [aspects]uint64 // of options
	several bool            // caches of several namespaces
	patient bool            // nothing counts as synced before the server says so
	failing bool            // readers do not make informers
	started bool
	// since the last look handlers were told changes by the watch, and nothing else
	plain     bool
	removed   bool                                   // an informer, before the start
	kinds     map[string]*used                       // that have informers
	woken     []string                               // kinds that had handlers in the life before
	kept      []*informer.Informer                   // that are over the file, in this life; guarded by mu
	sources   map[string][]boltstore.Source          // that each kind's informers have now; guarded by mu
	left      map[boltstore.Source]*left             // by earlier lives
	inherited map[boltstore.Source]map[string]string // what handlers of an earlier life knew of each source
}

// used is a kind that has an informer.
type used struct {
	kind     *randomKind
	since    time.Time
	handled  bool // it had a handler soon
	handlers []*pair
	indices  map[string]bool
}

// pair is a handler of each cache.
type pair struct {
	of   [2]*randomHandler
	gone bool
}

// randomSide is one of the two caches.
type randomSide struct {
	cache.Cache
	db    *boltstore.DB // nil if it is stock
	stop  context.CancelFunc
	ended chan error
}

func newProgram(t *testing.T, seed uint64) *program {
	t.Helper()
	p := &program{t: t, r: rand.New(rand.NewPCG(seed, 21)), sim: kubesim.New(kubesim.Options{HistorySize: 100_000}),
		path: filepath.Join(t.TempDir(), "cache.db"), mapper: randomMapper(),
		left: map[boltstore.Source]*left{}, inherited: map[boltstore.Source]map[string]string{}}
	if err := p.sim.StartPipes(); err != nil {
		t.Fatal(err)
	}
	return p
}

func randomProgram(t *testing.T, seed uint64) {
	p := newProgram(t, seed)
	defer func() {
		if t.Failed() {
			t.Log(strings.Join(p.story, "\n"))
		}
	}()
	for range 15 {
		p.change(p.r)
	}
	for range 2 + p.r.IntN(4) {
		p.live()
		if t.Failed() {
			break
		}
		for range p.r.IntN(8) {
			p.change(p.r)
		}
		if p.r.IntN(3) == 0 {
			p.say("compacted")
			p.sim.Compact()
		}
	}
	p.sim.Close()
	after(time.Minute)
}

func (p *program) say(a ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.story = append(p.story, fmt.Sprint(a...))
}
