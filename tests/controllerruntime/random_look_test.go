package controllerruntime

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// randomHandler knows objects by what it is told.
type randomHandler struct {
	ours bool
	reg  toolscache.ResourceEventHandlerRegistration

	mu     sync.Mutex
	world  map[string]string // version and UID by key
	stale  map[string]bool   // keys that an earlier life knew
	calls  []string          // since the last look
	faults []string
}

// inherit makes the handler know what one of an earlier life knew.
func (h *randomHandler) inherit(world map[string]string) {
	maps.Copy(h.world, world)
	for key := range world {
		h.stale[key] = true
	}
}

func (h *randomHandler) knows() map[string]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.world)
}

func (h *randomHandler) fault(format string, a ...any) {
	h.faults = append(h.faults, fmt.Sprintf(format, a...))
}

func randomState(obj any) (key, state string) {
	o := obj.(client.Object)
	return o.GetNamespace() + "/" + o.GetName(), fmt.Sprint(o.GetResourceVersion(), " ", o.GetUID())
}

func (h *randomHandler) OnAdd(obj any, _ bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key, state := randomState(obj)
	if was, ok := h.world[key]; ok && !h.stale[key] {
		h.fault("added %s %s, known as %s", key, state, was)
	}
	h.world[key] = state
	delete(h.stale, key)
	h.calls = append(h.calls, key+" added "+state)
}

func (h *randomHandler) OnUpdate(old, obj any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key, state := randomState(obj)
	oldKey, oldState := randomState(old)
	if was := h.world[key]; key != oldKey || was != oldState {
		h.fault("updated %s %s to %s %s, known as %q", oldKey, oldState, key, state, was)
	}
	h.world[key] = state
	delete(h.stale, key)
	if state != oldState {
		h.calls = append(h.calls, key+" updated "+state)
	}
}

func (h *randomHandler) OnDelete(obj any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		if d.Obj == nil {
			h.fault("the last state of %s is unknown", d.Key)
			return
		}
		obj = d.Obj
	}
	key, state := randomState(obj)
	if was, ok := h.world[key]; !ok && !h.ours {
		h.fault("deleted %s %s, which is not known", key, state)
	} else if ok && was[strings.Index(was, " "):] != state[strings.Index(state, " "):] && !h.ours {
		h.fault("deleted %s %s, known as %s", key, state, was)
	}
	delete(h.world, key)
	delete(h.stale, key)
	h.calls = append(h.calls, key+" deleted "+state)
}

func (h *randomHandler) String() string { return "random handler" }

// take returns the calls since the last time, in order for each object.
func (h *randomHandler) take() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	calls := h.calls
	h.calls = nil
	slices.SortStableFunc(calls, func(a, b string) int {
		a, _, _ = strings.Cut(a, " ")
		b, _, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	})
	return strings.Join(calls, "\n    ")
}

// seen is what the handler knows.
func (h *randomHandler) seen() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for key, state := range h.world {
		if h.stale[key] {
			state += " of an earlier life"
		}
		all = append(all, key+" "+state)
	}
	slices.Sort(all)
	return strings.Join(append(all, h.faults...), "\n    ")
}

// look compares the two caches.
func (p *program) look(when string) {
	p.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(p.kinds)) {
		u := p.kinds[name]
		p.lookAt(when+": "+name, u)
		if p.t.Failed() {
			return
		}
	}
	k := randomKinds[p.r.IntN(len(randomKinds))]
	if p.kinds[k.name] == nil && p.failing {
		p.both(when+": without an informer, "+k.name, func(_ int, s *randomSide) string {
			ctx, cancel := soon(time.Minute)
			defer cancel()
			return said(s.List(ctx, k.list())) + said(s.Get(ctx, client.ObjectKey{Namespace: "a", Name: "o1"}, k.one()))
		})
	}
}

func (p *program) lookAt(when string, u *used) {
	p.t.Helper()
	k := u.kind
	if p.started {
		p.both(when+": informer", func(_ int, s *randomSide) string {
			ctx, cancel := soon(time.Minute)
			defer cancel()
			inf, err := s.GetInformer(ctx, k.one())
			if err != nil {
				return said(err)
			}
			synctest.Wait()
			return fmt.Sprint(inf.HasSynced(), inf.IsStopped(), toolscache.IsDone(inf.HasSyncedChecker()))
		})
	}
	keys := []client.ObjectKey{{Name: "o0"}, {Namespace: "d", Name: "o1"}, {Namespace: "a", Name: "missing"}}
	for _, ns := range randomNamespaces {
		for i := range 4 {
			keys = append(keys, client.ObjectKey{Namespace: ns, Name: fmt.Sprint("o", i)})
		}
	}
	for _, key := range keys {
		var opts []client.GetOption
		if p.r.IntN(3) == 0 {
			opts = append(opts, client.UnsafeDisableDeepCopy)
		}
		p.both(fmt.Sprint(when, ": get ", key, opts), func(_ int, s *randomSide) string {
			ctx, cancel := soon(time.Minute)
			defer cancel()
			o := k.one()
			err := s.Get(ctx, key, o, opts...)
			return shown(o, err)
		})
	}
	all := p.list(when, u)
	for range 3 {
		p.list(when, u, p.query(u)...)
	}
	if !p.started || strings.HasPrefix(when, "without a link") { // handlers are told of the objects in the file
		return
	}
	limit := int64(1 + p.r.IntN(4))
	p.both(fmt.Sprint(when, ": the first ", limit), func(_ int, s *randomSide) string {
		ctx, cancel := soon(time.Minute)
		defer cancel()
		l := k.list()
		if err := s.List(ctx, l, client.Limit(limit)); err != nil {
			return said(err)
		}
		for _, line := range strings.Split(strings.TrimSpace(sorted(l, nil)), "\n") {
			if _, line, _ = strings.Cut(line, "{"); line != "" && !strings.Contains(all, line) {
				return "another object: " + line
			}
		}
		return fmt.Sprint(meta.LenList(l))
	})
	for _, h := range u.handlers {
		stock, ours := h.of[0].take(), h.of[1].take()
		if p.plain && stock != ours {
			p.t.Errorf("%s: a handler is told\n  stock %s\n  ours  %s", when, stock, ours)
		}
		p.both(when+": a handler knows", func(i int, _ *randomSide) string { return h.of[i].seen() })
		if !h.gone {
			p.both(when+": a handler has synced", func(i int, _ *randomSide) string {
				return fmt.Sprint(h.of[i].reg.HasSynced())
			})
		}
	}
}

// query returns random options of a list.
func (p *program) query(u *used) (opts []client.ListOption) {
	r := p.r
	if r.IntN(2) == 0 {
		opts = append(opts, client.InNamespace(append(randomNamespaces, "d")[r.IntN(4)]))
	}
	if r.IntN(2) == 0 {
		opts = append(opts, client.MatchingLabelsSelector{Selector: randomLabels(r)})
	}
	if r.IntN(3) > 0 {
		var terms []fields.Selector
		for range 1 + r.IntN(2) {
			terms = append(terms, fields.OneTermEqualSelector([]string{"app", "two", "n", "long",
				"missing"}[r.IntN(5)], []string{"x", "", "o1", "a", "3", strings.Repeat("o2", 20_000),
				"\x00\xff"}[r.IntN(7)]))
		}
		if r.IntN(8) == 0 {
			terms = append(terms, fields.OneTermNotEqualSelector("app", "x"))
		}
		opts = append(opts, client.MatchingFieldsSelector{Selector: fields.AndSelectors(terms...)})
	}
	if r.IntN(4) == 0 {
		opts = append(opts, client.UnsafeDisableDeepCopy)
	}
	if r.IntN(20) == 0 {
		opts = append(opts, client.Continue("x"))
	}
	return opts
}

func (p *program) list(when string, u *used, opts ...client.ListOption) string {
	p.t.Helper()
	var o client.ListOptions
	o.ApplyOptions(opts)
	return p.both(fmt.Sprintf("%s: list %.300s", when, fmt.Sprintf("%+v", o)), func(_ int, s *randomSide) string {
		ctx, cancel := soon(time.Minute)
		defer cancel()
		l := u.kind.list()
		err := s.List(ctx, l, opts...)
		return sorted(l, err)
	})
}
