package controllerruntime

import (
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// left is what the store of a source had when its informer ended.
type left struct {
	objects   []string // key and version of each
	transform string   // version of the transforms
}

// leave notes what the stores of the life's sources have. It is not known of a source that
// had not synced.
func (p *program) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, inf := range p.kept {
		var l *left
		if inf.HasSynced() {
			l = &left{transform: p.transformVersion()}
			for _, o := range inf.GetStore().List() {
				l.objects = append(l.objects, named(o.(client.Object)))
			}
		}
		p.left[inf.Store().Source()] = l
	}
}

func named(o client.Object) string {
	return o.GetNamespace() + "/" + o.GetName() + " " + o.GetResourceVersion()
}

// offline starts the caches without a link. Any age will do, so our cache has what it had
// at the end of the last life in which it had the same sources under the same transforms.
func (p *program) offline() {
	p.t.Helper()
	p.say("it starts without a link, and reads")
	if err := p.sim.RefuseConnections(true); err != nil {
		p.t.Fatal(err)
	}
	p.startBoth()
	synctest.Wait()
	for _, k := range randomKinds {
		if p.r.IntN(2) == 0 {
			continue
		}
		p.say("informer of ", k.name, " without a link")
		for _, s := range p.sides {
			ctx, cancel := soon(time.Minute)
			if _, err := s.GetInformer(ctx, k.one(), cache.BlockUntilSynced(false)); err != nil {
				p.t.Error(err)
			}
			cancel()
		}
		p.use(k)
		p.readOffline(k)
	}
	if err := p.sim.RefuseConnections(false); err != nil {
		p.t.Fatal(err)
	}
	after(3 * time.Minute)
}

// readOffline lists a kind. Only sources that have been listed have an answer.
func (p *program) readOffline(k *randomKind) {
	p.t.Helper()
	var want []string
	never, changed := false, false
	sources := p.sourcesOf(k)
	for _, src := range sources {
		switch l, ok := p.left[src]; {
		case !ok:
			never = true
		case l == nil:
			return
		default:
			changed = changed || l.transform != p.transformVersion()
			want = append(want, l.objects...)
		}
	}
	l := k.list()
	ctx, cancel := soon(time.Second)
	defer cancel()
	if err := p.sides[1].List(ctx, l); err != nil {
		if !never && !changed {
			p.t.Errorf("without a link, %s of %v: %v", k.name, sources, err)
		}
		return
	}
	all, err := meta.ExtractList(l)
	if err != nil {
		p.t.Fatal(err)
	}
	var got []string
	for _, o := range all {
		got = append(got, named(o.(client.Object)))
	}
	slices.Sort(got)
	slices.Sort(want)
	if never || !slices.Equal(got, want) {
		p.t.Errorf("without a link, %s of %v\n  left  %s\n  found %s", k.name, sources, strings.Join(want, ", "),
			strings.Join(got, ", "))
	}
}
