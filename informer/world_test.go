package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer/internal/durable"
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

func cm(name string, data ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"data": strings.Join(data, ",")}}
}

// costs fails the test if what the server has been asked for since the last
// ResetRequests is more than most, or if most would let twice as much pass.
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

func listWatch(cfg *rest.Config) cache.ListerWatcher {
	return cache.NewListWatchFromClient(kubernetes.NewForConfigOrDie(cfg).CoreV1().RESTClient(), "configmaps", "", fields.Everything())
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

// replayed waits until all handlers have taken in what there was when they came:
// what changes from then on they are told as changes.
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
		if d.Inspect().Replaying {
			return false
		}
	}
	return true
}

// only is the informer's durable handler.
func (l *life) only() (d *durable.Handler) {
	l.inf.mu.Lock()
	defer l.inf.mu.Unlock()
	for d = range l.inf.durables {
	}
	return d
}

// equal waits until the cache is what the server has.
func (l *life) equal() *life {
	l.t.Helper()
	want, _, err := l.sim.List(&corev1.ConfigMap{})
	if err != nil {
		l.t.Fatal(err)
	}
	var diff string
	eventually(l.t, "equal to the server", func() bool {
		diff = difference(want, l.inf.GetStore().List())
		return diff == ""
	})
	return l
}

// watching waits until the server has a watch open, which is behind a list that
// has synced the informer: what is counted from then on is not of its start.
func (l *life) watching() *life {
	l.t.Helper()
	eventually(l.t, "watching", func() bool {
		return slices.ContainsFunc(l.sim.Requests(), func(r kubesim.RequestRecord) bool { return r.Verb == "watch" && r.Open })
	})
	return l
}

func difference(want []kubesim.Object, got []any) string {
	byKey := map[string]any{}
	for _, o := range got {
		k, _ := cache.MetaNamespaceKeyFunc(o)
		byKey[k] = o
	}
	for _, o := range want {
		k, _ := cache.MetaNamespaceKeyFunc(o)
		if !apiequality.Semantic.DeepEqual(o, byKey[k]) {
			return fmt.Sprintf("%s: server %v, cache %v", k, o, byKey[k])
		}
		delete(byKey, k)
	}
	if len(byKey) > 0 {
		return fmt.Sprint("the cache has what the server has not: ", slices.Collect(maps.Keys(byKey)))
	}
	return ""
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(2 * time.Millisecond); !cond(); {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("timed out: %s", what)
		}
	}
}

// recorder is a handler that keeps what it is told, over several lives, and
// finds fault with it.
type recorder struct {
	t  *testing.T
	mu sync.Mutex
	// there is what it was told exists, by key.
	there map[string]*corev1.ConfigMap
	log   []string
}

func newRecorder(t *testing.T) *recorder {
	return &recorder{t: t, there: map[string]*corev1.ConfigMap{}}
}

func (r *recorder) OnAdd(obj any, initial bool) {
	o := obj.(*corev1.ConfigMap)
	r.told(map[bool]string{true: "initial ", false: "add "}[initial], o.Name, o)
}

func (r *recorder) OnUpdate(old, obj any) {
	a, b := old.(*corev1.ConfigMap), obj.(*corev1.ConfigMap)
	if a.Name != b.Name || a.UID != b.UID {
		r.t.Errorf("update of %s %s to %s %s", a.Name, a.UID, b.Name, b.UID)
	}
	r.told(map[bool]string{true: "resync ", false: "update "}[a.ResourceVersion == b.ResourceVersion], b.Name, b)
}

func (r *recorder) OnDelete(obj any) {
	kind := "delete "
	if d, unknown := obj.(cache.DeletedFinalStateUnknown); unknown {
		kind, obj = "missed ", d.Obj
	}
	o, ok := obj.(*corev1.ConfigMap)
	if !ok {
		r.t.Errorf("told of a delete with a %T", obj)
		return
	}
	r.told(kind, o.Name, nil)
}

func (r *recorder) told(kind, name string, obj *corev1.ConfigMap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if obj == nil {
		delete(r.there, name)
	} else {
		if old := r.there[name]; old != nil && old.UID != obj.UID {
			r.t.Errorf("%s came back with another UID and no delete between", name)
		}
		r.there[name] = obj
	}
	r.log = append(r.log, kind+name)
}

// take returns what was told since the last take, sorted.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	log := r.log
	r.log = nil
	slices.Sort(log)
	return log
}

func (r *recorder) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(maps.Keys(r.there))
}

// expect waits until just that has been told.
func (r *recorder) expect(what ...string) {
	r.t.Helper()
	slices.Sort(what)
	var got []string
	deadline := time.Now().Add(time.Minute)
	for !slices.Equal(got, what) {
		got = append(got, r.take()...)
		slices.Sort(got)
		if time.Now().After(deadline) {
			r.t.Fatalf("told %q, want %q", got, what)
		}
	}
}
