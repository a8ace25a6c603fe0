package controllerruntime

import (
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// step is the next step. It says whether the link was lost.
func (p *program) step() (fault bool) {
	p.t.Helper()
	r := p.r
	switch k := r.IntN(100); {
	case k < 26:
		for range 1 + r.IntN(5) {
			p.change(r)
		}
		p.plain = p.started
	case k < 32:
		p.atOnce()
	case k < 42:
		p.informer(randomKinds[p.r.IntN(len(randomKinds))])
	case k < 60:
		p.addHandler(nil)
	case k < 66:
		p.removeHandler()
	case k < 70:
		p.removeInformer()
	case k < 80:
		p.index()
	case k < 84:
		p.say("a while")
		after(time.Duration(p.r.IntN(70)) * time.Second)
	default:
		p.fault()
		return true
	}
	return false
}

// atOnce adds handlers, informers and indices while objects change.
func (p *program) atOnce() {
	p.t.Helper()
	var changes sync.WaitGroup
	r := rand.New(rand.NewPCG(p.r.Uint64(), 23))
	changes.Go(func() {
		for range 5 + r.IntN(10) {
			p.change(r)
			// on the bubble's clock, which takes no time: changes come at random moments
			time.Sleep(time.Duration(r.IntN(40)) * time.Millisecond) // on the bubble's clock, see above
		}
	})
	p.say("at once:")
	for range 1 + p.r.IntN(3) {
		switch p.r.IntN(4) {
		case 0:
			p.index()
		case 1:
			p.informer(randomKinds[p.r.IntN(len(randomKinds))])
		default:
			p.addHandler(nil)
		}
		// on the bubble's clock, which takes no time: steps fall between changes
		time.Sleep(time.Duration(p.r.IntN(60)) * time.Millisecond) // on the bubble's clock, see above
	}
	changes.Wait()
}

// informer asks for a kind's informer, which is made if there is none.
func (p *program) informer(k *randomKind) *used {
	p.t.Helper()
	how := p.r.IntN(5)
	if how >= 3 && p.failing {
		how = 0
	}
	p.say("informer of ", k.name, ", how ", how)
	err := p.both("informer of "+k.name, func(_ int, s *randomSide) string {
		ctx, cancel := soon(3 * time.Minute) // eight failed requests take a minute and more
		defer cancel()
		var err error
		switch how {
		case 0:
			_, err = s.GetInformer(ctx, k.one())
		case 1:
			_, err = s.GetInformer(ctx, k.one(), cache.BlockUntilSynced(false))
		case 2:
			if !strings.HasPrefix(k.name, "typed") {
				_, err = s.GetInformer(ctx, k.one())
				break
			}
			_, err = s.GetInformerForKind(ctx, k.gvk)
		case 3:
			err = s.List(ctx, k.list())
			if p.started {
				break
			}
			if not := new(cache.ErrCacheNotStarted); !errors.As(err, &not) {
				return "not started: " + said(err)
			}
			err = nil
		case 4:
			o := k.one()
			o.SetName("o3")
			o.SetNamespace("b")
			err = s.IndexField(ctx, o, "later", func(o client.Object) []string {
				return []string{o.GetAnnotations()["n"]}
			})
		}
		return said(err)
	})
	if err != "" && how != 4 && how != 3 {
		p.t.Errorf("informer of %s: %s", k.name, err)
	}
	return p.use(k)
}

func (p *program) use(k *randomKind) *used {
	u := p.kinds[k.name]
	if u == nil {
		u = &used{kind: k, since: time.Now(), indices: map[string]bool{}}
		p.kinds[k.name] = u
	}
	return u
}

// any returns one of the kinds in use, or nil.
func (p *program) any() *used {
	names := slices.Sorted(maps.Keys(p.kinds))
	if len(names) == 0 {
		return nil
	}
	return p.kinds[names[p.r.IntN(len(names))]]
}

// addHandler adds a handler of the kind, or of any.
func (p *program) addHandler(k *randomKind) {
	p.t.Helper()
	u := p.any()
	if k != nil {
		u = p.use(k)
	} else if u == nil || p.r.IntN(3) == 0 {
		u = p.informer(randomKinds[p.r.IntN(len(randomKinds))])
	}
	h := &pair{}
	p.say("handler of ", u.kind.name)
	p.both("a handler of "+u.kind.name, func(i int, s *randomSide) string {
		h.of[i] = &randomHandler{ours: i == 1, world: map[string]string{}, stale: map[string]bool{}}
		ctx, cancel := soon(time.Minute)
		defer cancel()
		inf, err := s.GetInformer(ctx, u.kind.one(), cache.BlockUntilSynced(false))
		if err != nil {
			return said(err)
		}
		if i == 1 && !u.handled && !p.removed && (!p.started || time.Since(u.since) < 20*time.Second) {
			h.of[i].inherit(p.inheritedOf(u.kind))
		}
		h.of[i].reg, err = inf.AddEventHandler(h.of[i])
		return said(err)
	})
	if !p.started || time.Since(u.since) < 20*time.Second {
		u.handled = true
	}
	u.handlers = append(u.handlers, h)
}

func (p *program) removeHandler() {
	p.t.Helper()
	u := p.any()
	if u == nil || len(u.handlers) == 0 || p.several && !p.started {
		return
	}
	h := u.handlers[p.r.IntN(len(u.handlers))]
	p.say("remove a handler of ", u.kind.name)
	p.both("remove a handler of "+u.kind.name, func(i int, s *randomSide) string {
		ctx, cancel := soon(time.Minute)
		defer cancel()
		inf, err := s.GetInformer(ctx, u.kind.one(), cache.BlockUntilSynced(false))
		if err != nil {
			return said(err)
		}
		return said(inf.RemoveEventHandler(h.of[i].reg))
	})
	h.gone = true
	if !p.started { // nobody has told it anything
		u.handlers = slices.DeleteFunc(u.handlers, func(other *pair) bool { return other == h })
	}
	u.handled = slices.ContainsFunc(u.handlers, func(h *pair) bool { return !h.gone })
}

func (p *program) removeInformer() {
	p.t.Helper()
	u := p.any()
	if u == nil || !p.started && (p.several || strings.HasPrefix(u.kind.name, "metadata")) {
		return // a list in memory would leave a goroutine, see stockInformer
	}
	p.say("remove the informer of ", u.kind.name)
	p.removed = p.removed || !p.started
	p.keep(u)
	delete(p.kinds, u.kind.name)
	p.mu.Lock()
	delete(p.sources, u.kind.name)
	p.mu.Unlock()
	p.both("remove the informer of "+u.kind.name, func(_ int, s *randomSide) string {
		ctx, cancel := soon(time.Minute)
		defer cancel()
		return said(s.RemoveInformer(ctx, u.kind.one()))
	})
	if p.r.IntN(3) == 0 {
		return
	}
	p.informer(u.kind)
	for range p.r.IntN(6) {
		p.change(p.r)
	}
	// on the bubble's clock, which takes no time: the informer has synced or not
	time.Sleep(time.Duration(p.r.IntN(100)) * time.Millisecond) // on the bubble's clock, see above
	if slices.Contains(p.woken, u.kind.name) && p.r.IntN(3) > 0 {
		p.addHandler(u.kind)
	}
}

// randomIndices have the same function under a name in each life.
var randomIndices = map[string]client.IndexerFunc{
	"app": func(o client.Object) []string { return []string{o.GetLabels()["app"]} },
	"two": func(o client.Object) []string { return []string{o.GetName(), o.GetNamespace()} },
	"long": func(o client.Object) []string {
		return []string{strings.Repeat(o.GetName(), 20_000), "", "\x00\xff",
			o.GetName() + "/" + strings.Repeat("x", len(o.GetAnnotations()["n"])*1000)}
	},
	"n": func(o client.Object) []string {
		if n := o.GetAnnotations()["n"]; n != "" {
			return []string{n[len(n)-1:], n[len(n)-1:]}
		}
		return nil
	},
}

func (p *program) index() {
	p.t.Helper()
	u := p.any()
	if u == nil {
		return
	}
	name := slices.Sorted(maps.Keys(randomIndices))[p.r.IntN(len(randomIndices))]
	if u.indices[name] && p.several {
		return // whichever namespace comes first says so
	}
	p.say("index ", name, " of ", u.kind.name)
	p.both("index "+name+" of "+u.kind.name, func(_ int, s *randomSide) string {
		ctx, cancel := soon(time.Minute)
		defer cancel()
		return said(s.IndexField(ctx, u.kind.one(), name, randomIndices[name]))
	})
	u.indices[name] = true
}

// fault loses the link for a while. Meanwhile objects change.
func (p *program) fault() {
	p.t.Helper()
	r := p.r
	var what string
	heal := func() error { return nil }
	fail := func(err error) {
		if err != nil {
			p.t.Fatal(err)
		}
	}
	switch r.IntN(10) {
	case 0:
		what = "connections dropped"
		p.sim.DropConnections()
	case 1:
		what = "watches ended"
		p.sim.EndWatches(nil)
	case 2:
		what = "watches expired"
		p.sim.Compact()
		p.sim.EndWatches(apierrors.NewResourceExpired("too old resource version"))
	case 3:
		what = "watches failed"
		p.sim.EndWatches(apierrors.NewInternalError(errors.New("test")))
	case 4:
		what = "server restarted"
		fail(p.sim.Restart(kubesim.RestartOptions{Down: time.Duration(r.IntN(30)) * time.Second,
			Initializing: r.IntN(4)}))
	case 5:
		what = "refused"
		fail(p.sim.RefuseConnections(true))
		heal = func() error { return p.sim.RefuseConnections(false) }
	case 6:
		what = "stalled"
		p.sim.Stall(true)
		heal = func() error { p.sim.Stall(false); return nil }
	case 7:
		what = "requests failed"
		answer := []*apierrors.StatusError{apierrors.NewTooManyRequests("test", 1),
			apierrors.NewInternalError(errors.New("test")), apierrors.NewUnauthorized("test"),
			apierrors.NewForbidden(configMaps.GroupVersion().WithResource("configmaps").GroupResource(), "", nil),
			nil}[r.IntN(5)]
		var with http.HandlerFunc
		if answer != nil {
			with = kubesim.Answer(answer)
		}
		last := p.faults.Add(1)
		p.sim.FailNext(func(*http.Request) bool {
			if p.faults.Load() != last {
				return false // too many in a row would outlast a call
			}
			p.failed.Store(true)
			return true
		}, 1+r.IntN(8), with)
		p.sim.EndWatches(nil)
	case 8:
		what = "definition deleted and made again"
		fail(p.sim.Redefine(schema.GroupResource{Group: widgets.Group, Resource: "widgets"}, widgets.Kind))
	case 9:
		what = "no such resource for a while"
		var back atomic.Bool
		p.sim.FailNext(func(r *http.Request) bool {
			return !back.Load() && strings.Contains(r.URL.Path, "/example.com/v1/")
		}, 1<<30, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "404 page not found", http.StatusNotFound)
		})
		p.sim.EndWatches(nil)
		heal = func() error { back.Store(true); return nil }
		if r.IntN(2) == 0 {
			fail(p.sim.Redefine(schema.GroupResource{Group: widgets.Group, Resource: "widgets"}, widgets.Kind))
		}
		after(time.Duration(r.IntN(300)) * time.Second)
	}
	p.say(what)
	changed := func() {
		for range r.IntN(6) {
			p.change(r)
		}
	}
	changed()
	if r.IntN(3) == 0 {
		p.sim.Compact()
		p.say("compacted")
	}
	if r.IntN(3) == 0 {
		after(time.Duration(r.IntN(90)) * time.Second)
		changed()
	}
	if r.IntN(4) == 0 {
		k := randomKinds[r.IntN(len(randomKinds))]
		p.say("informer of ", k.name, " meanwhile")
		p.both("informer meanwhile", func(_ int, s *randomSide) string {
			ctx, cancel := soon(10 * time.Second)
			defer cancel()
			_, err := s.GetInformer(ctx, k.one(), cache.BlockUntilSynced(false))
			return said(err)
		})
		p.use(k)
	}
	fail(heal())
	p.say("healed")
}
