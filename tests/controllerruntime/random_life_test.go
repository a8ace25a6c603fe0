package controllerruntime

import (
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
)

// live is a life of the program.
func (p *program) live() {
	p.begin()
	var late []*randomKind
	for _, name := range p.woken {
		switch p.r.IntN(4) { // as in the life before
		case 0, 1:
			p.addHandler(p.kind(name))
		case 2:
			p.informer(p.kind(name))
			late = append(late, p.kind(name))
		}
	}
	for range p.r.IntN(6) {
		if fault := p.step(); fault {
			after(time.Minute)
		}
		p.look("before the start")
	}
	if p.patient && p.r.IntN(6) == 0 {
		p.say("it starts without a link")
		if err := p.sim.RefuseConnections(true); err != nil {
			p.t.Fatal(err)
		}
		p.startBoth()
		synctest.Wait()
		p.look("without a link")
		if err := p.sim.RefuseConnections(false); err != nil {
			p.t.Fatal(err)
		}
		after(3 * time.Minute)
	}
	if !p.patient && !p.removed && p.r.IntN(3) == 0 { // a list of an informer that was removed is in memory
		p.offline()
	}
	if !p.started && (p.r.IntN(6) > 0 || p.several) {
		p.startBoth()
		if p.r.IntN(8) == 0 && !p.several {
			p.say("it ends while it syncs")
			p.stop()
			p.end()
			return
		}
	}
	after(3 * time.Second)
	for _, k := range late {
		p.addHandler(k)
	}
	p.settle(3 * time.Second)
	p.look("after the start")
	for n := range 2 + p.r.IntN(12) {
		if p.t.Failed() {
			break
		}
		if fault := p.step(); fault {
			after(3 * time.Minute)
		} else {
			p.settle(500 * time.Millisecond)
		}
		p.look(fmt.Sprint("step ", n))
		p.plain = false
	}
	if p.r.IntN(3) == 0 {
		p.say("the end comes soon after changes")
		for range 1 + p.r.IntN(10) {
			p.change(p.r)
		}
		// on the bubble's clock, which takes no time: some changes have come, others have not
		time.Sleep(time.Duration(p.r.IntN(30)) * time.Millisecond) // on the bubble's clock, see above
		p.stop()
	} else if p.stop(); p.started && p.r.IntN(2) == 0 {
		p.look("after the end")
	}
	p.end()
}

// begin makes the caches of a life.
func (p *program) begin() {
	p.t.Helper()
	p.choose()
	p.kept, p.kinds, p.sources, p.started, p.removed = nil, map[string]*used{}, map[string][]boltstore.Source{},
		false, false
	log := funcr.New(p.logged, funcr.Options{})
	o := boltstore.Options{Logger: &log, Durability: boltstore.DurabilityProcess,
		ObjectMemory: []int64{0, -1, 20_000}[p.r.IntN(3)]}
	db, err := boltstore.Open(p.path, o)
	if err != nil {
		p.t.Fatal(err)
	}
	is := informer.Options{TransformVersion: p.transformVersion()}
	if p.patient = p.r.IntN(3) > 0; !p.patient {
		is.MaxStaleness = -1
	}
	is.Reflector.Confirm = []reflector.Confirm{reflector.ConfirmAuto, reflector.ConfirmBookmark,
		reflector.ConfirmList}[p.r.IntN(3)]
	p.say("life: options ", p.choices, ", memory ", o.ObjectMemory, ", confirm ", is.Reflector.Confirm)
	for i := range p.sides {
		cfg := p.sim.RESTConfig()
		o := p.options()
		s := &randomSide{}
		o.NewInformer = stockInformer
		if i == 1 {
			cfg = reflector.WrapConfig(cfg)
			s.db = db
			o.NewInformer = p.noted(informer.ForControllerRuntime(db, is))
		}
		s.make(p.t, cfg, o)
		p.sides[i] = s
	}
}

// logged is told each line of the file's log. When an informer goes without the file, it
// keeps the stacks of all goroutines, which show what the informer has waited for.
func (p *program) logged(_, line string) {
	if strings.Contains(line, "in memory only") {
		stacks := make([]byte, 4<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stacks = stacks
	}
}

func (s *randomSide) make(t *testing.T, cfg *rest.Config, o cache.Options) {
	t.Helper()
	var err error
	if s.Cache, err = cache.New(cfg, o); err != nil {
		t.Fatal(err)
	}
}

func (p *program) startBoth() {
	p.say("start")
	p.started = true
	for _, s := range p.sides {
		ctx, stop := context.WithCancel(context.Background())
		s.stop, s.ended = stop, make(chan error, 1)
		go func() { s.ended <- s.Start(ctx) }()
	}
}

// stop stops the caches.
func (p *program) stop() {
	p.t.Helper()
	for _, s := range p.sides {
		if s.stop != nil {
			s.stop()
		}
	}
	for _, s := range p.sides {
		if s.ended == nil {
			continue
		}
		if err := <-s.ended; err != nil {
			p.t.Error(err)
		}
	}
}

// end ends the life.
func (p *program) end() {
	p.t.Helper()
	db := p.sides[1].db
	if fell := db.Fallbacks(); len(fell) > 0 && !p.removed {
		p.t.Errorf("informers without the file: %v\n%s", fell, p.stacks)
	}
	if p.started {
		p.leave()
	}
	if err := db.Close(); err != nil {
		p.t.Error(err)
	}
	if p.started {
		for _, u := range p.kinds {
			p.keep(u)
		}
	}
}

// newInformer is the type of cache.Options.NewInformer.
type newInformer func(toolscache.ListerWatcher, apiruntime.Object, time.Duration,
	toolscache.Indexers) toolscache.SharedIndexInformer

// noted notes which sources a kind's informers have.
func (p *program) noted(make newInformer) newInformer {
	return func(lw toolscache.ListerWatcher, o apiruntime.Object, resync time.Duration,
		indexers toolscache.Indexers) toolscache.SharedIndexInformer {
		inf := make(lw, o, resync, indexers)
		if kept, ok := inf.(*informer.Informer); ok {
			name := formOf(o)
			p.mu.Lock()
			defer p.mu.Unlock()
			p.kept = append(p.kept, kept)
			p.sources[name] = append(p.sources[name], kept.Store().Source())
		}
		return inf
	}
}

func (p *program) sourcesOf(k *randomKind) []boltstore.Source {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.sources[k.name])
}

// inheritedOf is what handlers of an earlier life knew of the sources that the kind has now.
func (p *program) inheritedOf(k *randomKind) map[string]string {
	all := map[string]string{}
	for _, src := range p.sourcesOf(k) {
		maps.Copy(all, p.inherited[src])
	}
	return all
}

// keep remembers what the handlers of a kind know, for those of the next informer. Each
// source remembers its own objects.
func (p *program) keep(u *used) {
	sources := p.sourcesOf(u.kind)
	for _, src := range sources {
		delete(p.inherited, src)
	}
	if p.woken = slices.DeleteFunc(p.woken, func(name string) bool {
		return name == u.kind.name
	}); !u.handled || p.removed {
		return
	}
	for _, h := range u.handlers {
		if h.gone {
			continue
		}
		for _, src := range sources {
			p.inherited[src] = map[string]string{}
		}
		for key, state := range h.of[1].knows() {
			ns, _, _ := strings.Cut(key, "/")
			for _, src := range sources {
				if src.Namespace == ns || src.Namespace == "" &&
					!slices.ContainsFunc(sources, func(s boltstore.Source) bool { return s.Namespace == ns }) {
					p.inherited[src][key] = state
				}
			}
		}
		p.woken = append(p.woken, u.kind.name)
		slices.Sort(p.woken)
		return
	}
}

// both does the same to both caches, which must answer the same.
func (p *program) both(what string, f func(i int, s *randomSide) string) string {
	p.t.Helper()
	var got [2]string
	for i, s := range p.sides {
		got[i] = f(i, s)
	}
	if got[0] != got[1] {
		p.t.Errorf("%s\n  stock %s\n  ours  %s", what, got[0], got[1])
	}
	return got[0]
}

// stockInformer is client-go's. Whoever stops one of the metadata watches of
// controller-runtime must read to its end, or a goroutine of its is left over.
func stockInformer(
	lw toolscache.ListerWatcher, o apiruntime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	l := toolscache.ToListerWatcherWithContext(lw)
	return toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc: l.ListWithContext,
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := l.WatchWithContext(ctx, o)
			if err != nil {
				return nil, err
			}
			return &drained{w}, nil
		},
	}, o, resync, indexers)
}

type drained struct{ watch.Interface }

// Stop implements watch.Interface.
func (d *drained) Stop() {
	d.Interface.Stop()
	go func() {
		for range d.ResultChan() {
		}
	}()
}

// settle waits until both caches are up to date: for d, and longer if requests failed
// meanwhile. A fault before a start or an informer fails requests that come only then.
// The stock cache sends two in each try, ours one: then ours takes more tries.
func (p *program) settle(d time.Duration) {
	after(d)
	if p.failed.Swap(false) {
		after(3 * time.Minute)
	}
}

func after(d time.Duration) {
	time.Sleep(d) // on the bubble's clock, which takes no time: the caller's time passes
	synctest.Wait()
}

// soon is the context of a call that may block.
func soon(d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), d)
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return "error: " + err.Error()
}
