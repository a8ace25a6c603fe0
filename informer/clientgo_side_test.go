package informer

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/sealtest"
)

type note struct{ what, value string }

// side is client-go's informer or ours, with a scenario's notes about it.
type side struct {
	t     *testing.T
	file  bool // ours
	o     Options
	dir   string
	src   *tableSource
	began time.Time
	inf   cache.SharedIndexInformer
	db    *boltstore.DB

	cancel context.CancelFunc
	ended  chan struct{}

	mu    sync.Mutex
	notes []note
}

// begin makes the informer: the first one, or that of the next life.
func (s *side) begin() {
	s.t.Helper()
	s.cancel, s.ended = func() {}, nil
	if s.o.Reflector.Source == nil {
		s.o.Reflector.Source = &boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}
	}
	s.inf = s.another()
}

// another makes an informer over a file of its own, unless it is the first one.
func (s *side) another() cache.SharedIndexInformer {
	s.t.Helper()
	o := s.o
	o.Indexers = maps.Clone(o.Indexers) // client-go writes into it
	if o.Indexers == nil {
		o.Indexers = cache.Indexers{}
	}
	if !s.file {
		inf := cache.NewSharedIndexInformerWithOptions(s.src, &corev1.ConfigMap{}, cache.SharedIndexInformerOptions{
			ResyncPeriod: o.ResyncPeriod, Indexers: o.Indexers, ObjectDescription: o.ObjectDescription,
			Identifier:              o.InformerName.WithResource(corev1.SchemeGroupVersion.WithResource("configmaps")),
			InformerMetricsProvider: o.InformerMetricsProvider,
		})
		if s.o.Transform != nil {
			if err := inf.SetTransform(s.o.Transform); err != nil {
				s.t.Fatal(err)
			}
		}
		return inf
	}
	dir := s.dir
	if s.db != nil {
		dir = s.t.TempDir()
	}
	db, err := boltstore.Open(filepath.Join(dir, "f.db"),
		boltstore.Options{Keyset: sealtest.Default(), Durability: boltstore.DurabilityProcess,
			Window: time.Millisecond})
	if err != nil {
		s.t.Fatal(err)
	}
	if s.db == nil {
		s.db = db
	} else {
		s.t.Cleanup(func() {
			if err := db.Close(); err != nil {
				s.t.Error(err)
			}
		})
	}
	inf, err := NewSharedIndexInformer(db, s.src, &corev1.ConfigMap{}, o)
	if err != nil {
		s.t.Fatal(err)
	}
	return inf
}

// start runs the informer, and does not wait for anything.
func (s *side) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	s.cancel, s.ended = cancel, ended
	inf := s.inf
	go func() { defer close(ended); inf.RunWithContext(ctx) }()
}

// run starts the informer and waits until nothing happens any more.
func (s *side) run() {
	s.start()
	s.settle()
}

// stop stops the informer.
func (s *side) stop() {
	s.cancel()
	if s.ended != nil {
		<-s.ended
	}
}

// end ends a life of the process.
func (s *side) end() {
	s.t.Helper()
	s.stop()
	s.closeFile()
	synctest.Wait()
}

func (s *side) closeFile() {
	s.t.Helper()
	if s.db != nil {
		if err := s.db.Close(); err != nil {
			s.t.Error(err)
		}
	}
	s.db = nil
}

// settle waits until nothing happens any more.
func (s *side) settle() { after(50 * time.Millisecond) }

func (s *side) note(what string, values ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, v := range values {
		if list, ok := v.([]string); ok {
			values[i] = strings.Join(list, ", ")
		}
	}
	s.notes = append(s.notes, note{what, strings.TrimSuffix(fmt.Sprintln(values...), "\n")})
}

// state notes the informer's statements about itself.
func (s *side) state(when string) {
	inf := s.inf
	s.note(when+": synced", inf.HasSynced(), cache.IsDone(inf.HasSyncedChecker()), inf.GetController().HasSynced(),
		cache.IsDone(inf.GetController().HasSyncedChecker()))
	s.note(when+": stopped", inf.IsStopped())
	s.note(when+": version", inf.LastSyncResourceVersion(), inf.GetController().LastSyncResourceVersion(),
		inf.GetStore().LastStoreSyncResourceVersion())
	s.keys(when)
}

// keys notes the keys in the store.
func (s *side) keys(when string) {
	var keys []string
	for _, o := range s.inf.GetStore().List() {
		keys = append(keys, version(o))
	}
	slices.Sort(keys)
	s.note(when+": store", keys)
}

// add adds a handler, which must succeed.
func (s *side) add(h cache.ResourceEventHandler) cache.ResourceEventHandlerRegistration {
	s.t.Helper()
	reg, err := s.inf.AddEventHandler(h)
	if err != nil {
		s.t.Fatal(err)
	}
	return reg
}

func (s *side) registered(when string, reg cache.ResourceEventHandlerRegistration) {
	s.note(when, reg.HasSynced(), cache.IsDone(reg.HasSyncedChecker()))
}

// told notes what a handler has been told since the last time.
func (s *side) told(when string, handlers ...*tableHandler) {
	for _, h := range handlers {
		s.note(when+": "+h.name+" is told", h.take())
	}
}

func (s *side) create(names ...string) {
	for _, name := range names {
		s.src.Add(cm(name))
	}
}

func (s *side) modify(name string) { s.src.Modify(cm(name, time.Since(s.began).String())) }

func (s *side) delete(name string) { s.src.Delete(cm(name)) }

// event is a watch event that no well-behaved server sends.
func (s *side) event(typ watch.EventType, obj runtime.Object) {
	s.src.Broadcaster.Action(typ, obj)
	s.settle()
}

// at is the config map in a version.
func at(name, version string, data ...string) *corev1.ConfigMap {
	o := cm(name, data...)
	o.ResourceVersion = version
	return o
}

// version is an object's name and version.
func version(obj any) string {
	switch o := obj.(type) {
	case metav1.Object:
		return o.GetName() + "@" + o.GetResourceVersion()
	case cache.DeletedFinalStateUnknown:
		return "unknown " + o.Key + " " + version(o.Obj)
	}
	return fmt.Sprintf("%T", obj)
}

// tableSource is client-go's fake, which can fail and hang.
type tableSource struct {
	*fcache.FakeControllerSource

	mu       sync.Mutex
	asked    []string
	watchErr error
	hold     chan struct{} // lists wait for it, if there is one
}

func newTableSource() *tableSource {
	return &tableSource{FakeControllerSource: fcache.NewFakeControllerSource()}
}

func (*tableSource) IsWatchListSemanticsUnSupported() bool { return true }

func (f *tableSource) fail(list, watch error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.FakeControllerSource.ListError, f.watchErr = list, watch
}

func (f *tableSource) List(o metav1.ListOptions) (runtime.Object, error) {
	f.mu.Lock()
	f.asked = append(f.asked, "list")
	hold := f.hold
	f.mu.Unlock()
	if hold != nil {
		<-hold
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.FakeControllerSource.List(o)
}

func (f *tableSource) Watch(o metav1.ListOptions) (watch.Interface, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, "watch")
	if f.watchErr != nil {
		return nil, f.watchErr
	}
	return f.FakeControllerSource.Watch(o)
}

// tableHandler notes its calls.
type tableHandler struct {
	name string
	on   func(call string) // runs in each call
	mu   sync.Mutex
	told []string
}

func (s *side) handler(name string) *tableHandler { return &tableHandler{name: name} }

func (h *tableHandler) String() string { return h.name }

func (h *tableHandler) call(call string) {
	h.mu.Lock()
	h.told = append(h.told, call)
	h.mu.Unlock()
	if h.on != nil {
		h.on(call)
	}
}

func (h *tableHandler) OnAdd(obj any, initial bool) {
	h.call(strings.TrimSpace("add " + version(obj) + " " + map[bool]string{true: "initial"}[initial]))
}
func (h *tableHandler) OnUpdate(old, obj any) { h.call("update " + version(old) + " " + version(obj)) }
func (h *tableHandler) OnDelete(obj any)      { h.call("delete " + version(obj)) }

// take returns what was told since the last time. Initial objects are told in no
// certain order.
func (h *tableHandler) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	told := h.told
	h.told = nil
	slices.SortStableFunc(told, func(a, b string) int {
		if strings.HasSuffix(a, "initial") && strings.HasSuffix(b, "initial") {
			return cmp.Compare(a, b)
		}
		return 0
	})
	return told
}
