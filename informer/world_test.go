package informer

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/sealtest"
	"github.com/kubewake/kubewake/reflector"
)

// world is a server and a file that outlives informers.
type world struct {
	t    *testing.T
	sim  *kubesim.Server
	path string
	// options of the file.
	options boltstore.Options
	// form is what a transform makes of the server's objects; nil leaves them.
	form func(*corev1.ConfigMap)
}

func newWorld(t *testing.T) *world { return newWorldOf(t, kubesim.Options{}) }

func newWorldOf(t *testing.T, o kubesim.Options) *world {
	sim := kubesim.New(o)
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	return &world{t: t, sim: sim, path: filepath.Join(t.TempDir(), "wake.db")}
}

func (w *world) create(name string, data ...string) {
	w.t.Helper()
	if err := w.sim.Create(cm(name, data...)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) update(name string, data ...string) {
	w.t.Helper()
	if err := w.sim.Update(cm(name, data...)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(name string) {
	w.t.Helper()
	if err := w.sim.Delete(cm(name)); err != nil {
		w.t.Fatal(err)
	}
}

// costs fails the test if the requests since the last ResetRequests are more than most.
func (w *world) costs(what string, most kubesim.Cost) {
	w.t.Helper()
	if broken := kubesim.CostOf(w.sim.Requests()).Exceeds(most); broken != "" {
		w.t.Errorf("%s: %s", what, broken)
	}
	w.sim.ResetRequests()
}

func (w *world) config() *rest.Config {
	cfg := w.sim.RESTConfig()
	cfg.QPS = -1
	return reflector.WrapConfig(cfg)
}

// life is one life of a process: an open file and a running informer.
type life struct {
	*world
	db     *boltstore.DB
	inf    *Informer
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}
}

func (w *world) live(o Options, handlers ...cache.ResourceEventHandler) *life {
	w.t.Helper()
	fo := w.options
	fo.Keyset = sealtest.Default()
	db, err := boltstore.Open(w.path, fo)
	if err != nil {
		w.t.Fatal(err)
	}
	l := &life{world: w, db: db, done: make(chan struct{})}
	if o.Indexers == nil {
		o.Indexers = cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	}
	if l.inf, err = NewSharedIndexInformer(db, listWatch(w.config()), &corev1.ConfigMap{}, o); err != nil {
		w.t.Fatal(err)
	}
	for _, h := range handlers {
		if _, err := l.inf.AddEventHandler(h); err != nil {
			w.t.Fatal(err)
		}
	}
	return l
}

func (l *life) run() *life {
	ctx, cancel := context.WithCancel(context.Background())
	l.ctx, l.cancel = ctx, cancel
	go func() { defer close(l.done); l.inf.RunWithContext(ctx) }()
	l.t.Cleanup(l.end)
	return l
}

// end stops the life in order and checks the file.
func (l *life) end() {
	l.t.Helper()
	l.cancel()
	<-l.done
	if r, err := l.db.Check(); !errors.Is(err, boltstore.ErrClosed) && (err != nil || !r.Sound()) {
		l.t.Errorf("the file is not sound: %+v %v", r, err)
	}
	if err := l.db.Close(); err != nil {
		l.t.Errorf("close: %v", err)
	}
}

func (l *life) synced() *life {
	l.t.Helper()
	eventually(l.t, "synced", func() bool { return l.inf.HasSynced() })
	return l
}

// notSynced fails the test if the informer has synced, or is about to: its queue says so
// before the informer does.
func (l *life) notSynced() {
	l.t.Helper()
	if l.inf.queue.HasSynced() || l.inf.HasSynced() {
		l.t.Error("synced")
	}
}

// replayed waits until all handlers have taken in the objects that existed when they were
// added: later changes are told as changes.
func (l *life) replayed() *life {
	l.t.Helper()
	eventually(l.t, "replayed", l.inf.replayed)
	return l
}

func (inf *Informer) replayed() bool {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	for h := range inf.listeners {
		if !h.HasSynced() {
			return false
		}
	}
	for d := range inf.durables {
		if !d.HasSynced() {
			return false
		}
	}
	return true
}

// only is the informer's durable handler.
func (l *life) only() (d *durableHandler) {
	l.inf.mu.Lock()
	defer l.inf.mu.Unlock()
	for d = range l.inf.durables {
	}
	return d
}

// equal waits until the cache equals the server.
func (l *life) equal() *life {
	l.t.Helper()
	want, _, err := l.sim.List(&corev1.ConfigMap{})
	if err != nil {
		l.t.Fatal(err)
	}
	for i, o := range want {
		if o, ok := o.(*corev1.ConfigMap); ok && l.form != nil {
			o = o.DeepCopy()
			l.form(o)
			want[i] = o
		}
	}
	var diff string
	eventually(l.t, "equal to the server", func() bool {
		diff = difference(want, l.inf.GetStore().List())
		return diff == ""
	})
	return l
}

// watching waits until the server has a watch open. That comes after the list that has
// synced the informer, so requests counted from then on do not belong to the start.
func (l *life) watching() *life {
	l.t.Helper()
	eventually(l.t, "watching", func() bool {
		return slices.ContainsFunc(l.sim.Requests(), func(r kubesim.RequestRecord) bool {
			return r.Verb == "watch" && r.Open
		})
	})
	return l
}
