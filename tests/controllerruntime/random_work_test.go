package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	durable "github.com/kubewake/kubewake/informer/controllerruntime"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestWorkAtRandom: a durable controller, whose managers end or are killed at any moment,
// whose caches have other namespaces in each life, whose reconciles fail, panic and outlast
// their manager, and whose link breaks, in the end has reconciled the last state of each
// object, deletes included.
func TestWorkAtRandom(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil // one of them sleeps until a time outside the bubble
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
	warmUp(t)
	first, programs := randomSeeds(10)
	for seed := first; seed < first+programs; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { workProgram(t, seed) })
		})
	}
}

// worker is a durable controller in many lives.
type worker struct {
	*program
	kind *randomKind

	namespaces map[string]cache.Config // all that there are, or nil

	mu   sync.Mutex
	done map[reconcile.Request]seen // by the last reconcile that succeeded
	r    *rand.Rand                 // of reconciles
	calm bool
	n    int  // reconciles
	dies bool // the life is killed
}

// seen is the state that a reconcile has read: "gone", or a version.
type seen struct {
	n     int
	state string
}

func workProgram(t *testing.T, seed uint64) {
	p := newProgram(t, seed)
	defer func() {
		if t.Failed() {
			t.Log(strings.Join(p.story, "\n"))
		}
	}()
	w := &worker{program: p, kind: randomKinds[p.r.IntN(len(randomKinds))], done: map[reconcile.Request]seen{},
		r: rand.New(rand.NewPCG(seed, 24))}
	if p.r.IntN(2) == 0 {
		w.namespaces = map[string]cache.Config{}
		for _, ns := range randomNamespaces {
			w.namespaces[ns] = cache.Config{}
		}
	}
	p.say("works on ", w.kind.name, " in ", len(w.namespaces), " namespaces")
	for range 15 {
		p.change(p.r)
	}
	for range 3 + p.r.IntN(6) {
		w.live(false)
		for range p.r.IntN(8) {
			p.change(p.r)
		}
	}
	w.live(true)
	p.sim.Close()
	after(time.Minute)
}

// live is a life of the worker. The last one goes on until all is done.
func (w *worker) live(last bool) {
	w.t.Helper()
	r := w.program.r
	w.mu.Lock()
	w.calm = last
	w.mu.Unlock()
	namespaces := maps.Clone(w.namespaces)
	for _, ns := range slices.Sorted(maps.Keys(namespaces)) {
		if !last && len(namespaces) > 1 && r.IntN(3) == 0 {
			delete(namespaces, ns) // its list stays in the file
		}
	}
	quiet := logr.Discard()
	grace := time.Duration(r.IntN(3)) * time.Second
	mgr, err := durable.NewManager(w.sim.RESTConfig(),
		ctrl.Options{Metrics: metrics.Options{BindAddress: "0"}, GracefulShutdownTimeout: &grace,
			Controller: config.Controller{SkipNameValidation: new(true)},
			Cache:      cache.Options{DefaultNamespaces: namespaces},
			// While a cache asks for kinds, it holds a lock, and the bubble's clock would stand still.
			MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return w.mapper, nil },
		}, durable.File{Path: w.path, Options: boltstore.Options{Logger: &quiet,
			Durability: boltstore.DurabilityProcess},
			Informers: informer.Options{Strict: true}})
	if err != nil {
		w.t.Fatal(err)
	}
	work := durable.NewWork("operator")
	if err := ctrl.NewControllerManagedBy(mgr).Named("operator").
		WithOptions(controller.Options{MaxConcurrentReconciles: 1 + r.IntN(3)}).
		WatchesRawSource(durable.For(work, mgr.GetCache(), w.kind.one())).
		Complete(work.Reconciler(w.reconciler(mgr.GetClient()))); err != nil {
		w.t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	w.say("life, grace ", grace, ", namespaces ", len(namespaces))
	go func() { ended <- mgr.Start(ctx) }()
	for range r.IntN(6) {
		w.disturb()
	}
	kill := func() {}
	if !last && r.IntN(2) == 0 {
		kill = w.killed(durable.FileOf(mgr))
	}
	if !last && w.namespaces != nil { // controller-runtime leaves goroutines if some lists and handlers never sync
		w.mu.Lock()
		w.calm = true
		w.mu.Unlock()
		after(30 * time.Minute)
	}
	if last {
		after(30 * time.Minute)
		w.compare()
	}
	w.say("end")
	end()
	if err := <-ended; err != nil && !errors.Is(err, context.DeadlineExceeded) {
		w.t.Error(err)
	}
	if last || w.dies {
		after(time.Hour)
		if err := durable.FileOf(mgr).Close(); err != nil {
			w.t.Error(err)
		}
	}
	kill()
}

// killed kills the process, as far as the file and what was done are concerned: the next
// life finds them as they are now. It returns a function for when the life has ended.
func (w *worker) killed(db *boltstore.DB) func() {
	w.t.Helper()
	w.mu.Lock() // what is done until then is in the file, or is told again
	defer w.mu.Unlock()
	w.say("killed")
	done := maps.Clone(w.done)
	s, err := db.Snapshot()
	if err != nil {
		w.t.Fatal(err)
	}
	file, err := io.ReadAll(s)
	if err := errors.Join(err, s.Close()); err != nil {
		w.t.Fatal(err)
	}
	w.dies = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.dies, w.done = false, done
		if err := os.WriteFile(w.path, file, 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
}

// disturb changes objects, and sometimes the link breaks.
func (w *worker) disturb() {
	r := w.program.r
	for range r.IntN(6) {
		w.change(r)
		if r.IntN(4) == 0 {
			// on the bubble's clock, which takes no time: changes come at random moments
			time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond) // on the bubble's clock, see above
		}
	}
	switch r.IntN(8) {
	case 0:
		w.say("connections dropped")
		w.sim.DropConnections()
	case 1:
		w.say("restarted")
		if err := w.sim.Restart(kubesim.RestartOptions{Down: time.Duration(r.IntN(10)) * time.Second}); err != nil {
			w.t.Fatal(err)
		}
	case 2:
		w.say("compacted")
		w.sim.Compact()
		w.sim.DropConnections()
	case 3:
		// on the bubble's clock, which takes no time: work is retried, or the link is back
		time.Sleep(time.Duration(r.IntN(100)) * time.Second) // on the bubble's clock, see above
	}
	// on the bubble's clock, which takes no time: work is done or under way
	time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond) // on the bubble's clock, see above
}

func (w *worker) reconciler(c client.Client) reconcile.Func {
	return func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		w.mu.Lock()
		n, calm := w.r.IntN(20), w.calm
		w.n++
		read := seen{n: w.n, state: "gone"}
		w.mu.Unlock()
		obj := w.kind.one()
		switch err := c.Get(ctx, req.NamespacedName, obj); {
		case err == nil:
			read.state = obj.GetResourceVersion()
		case !apierrors.IsNotFound(err):
			return reconcile.Result{}, err
		}
		switch {
		case calm:
		case n == 0:
			panic("test")
		case n < 4:
			return reconcile.Result{}, errors.New("test")
		case n < 6:
			// on the bubble's clock, which takes no time: the work is slow, and does not look at
			// ctx
			time.Sleep(time.Duration(n) * time.Second) // on the bubble's clock, see above
		case n == 6:
			return reconcile.Result{RequeueAfter: time.Minute}, nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.done[req].n < read.n { // a reconcile of an earlier life may end later
			w.done[req] = read
		}
		return reconcile.Result{}, nil
	}
}

// compare compares what was done with the server.
func (w *worker) compare() {
	w.t.Helper()
	want := map[reconcile.Request]string{}
	like := w.kind.one()
	if strings.HasPrefix(w.kind.name, "metadata") {
		like = anything(w.kind.gvk)
	}
	all, _, err := w.sim.List(like)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, obj := range all {
		want[reconcile.Request{NamespacedName: client.ObjectKey{Namespace: obj.GetNamespace(),
			Name: obj.GetName()}}] = obj.GetResourceVersion()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, req := range slices.SortedFunc(maps.Keys(w.done), func(a, b reconcile.Request) int {
		return strings.Compare(a.String(), b.String())
	}) {
		if there := want[req]; there != w.done[req].state && (there != "" || w.done[req].state != "gone") {
			w.t.Errorf("%s was reconciled at %s, it is at %q", req, w.done[req].state, there)
		}
	}
	for req, there := range want {
		if w.done[req].n == 0 {
			w.t.Errorf("%s was never reconciled, it is at %s", req, there)
		}
	}
}
