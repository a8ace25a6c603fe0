package informer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"sync"
	"time"
	"weak"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/objmeta"
	"github.com/kubewake/kubewake/reflector"
)

// ForControllerRuntime returns a constructor of informers for controller-runtime's
// cache.Options.NewInformer. Each list of the manager becomes a source in the file:
// objects, unstructured and metadata side by side, namespaces and selectors apart. Give
// the rest.Config to reflector.WrapConfig before it makes the manager, and close the DB
// after the manager has ended. Reconciles may outlast a manager that has lost its lease
// or whose grace period has passed. Then leave the DB open until the process ends, since
// lists of a closed file are empty.
//
// An informer whose objects are in the file is an *Informer. A list may be impossible to
// claim (another cache of the process has it, or db is nil) or to identify (the config was
// not wrapped). It then gets client-go's informer in memory, an error in the log and an entry
// in boltstore.DB.Fallbacks, or with Options.Strict an informer that never syncs.
//
// Resync period and transforms come from the manager (cache.Options).
// Options.TransformVersion is the version of its transforms.
func ForControllerRuntime(
	db *boltstore.DB, o Options,
) func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer {
	m := &maker{db: db, o: o}
	return m.informer
}

// maker makes informers for callers that accept no error.
type maker struct {
	db *boltstore.DB
	o  Options
}

// lease is how long an informer has its source. Each channel is closed once.
type lease struct {
	key    leaseKey
	ending chan struct{} // the informer was told to end
	over   chan struct{} // its source is free

	want   sync.Once
	wanted chan struct{} // another informer waits for the source
}

// leaseKey is weak, since an informer that is never run keeps its lease.
type leaseKey struct {
	db     weak.Pointer[boltstore.DB]
	source string
}

// leases has the leases of all informers by their keys. A manager or factory may begin
// while an earlier one ends.
var leases sync.Map

// newLease is for an informer that is about to claim its source. Another informer may find
// the source claimed before claimed is called, so the lease is registered first. An older
// lease of the source stays until then.
func newLease(db *boltstore.DB, src boltstore.Source) *lease {
	l := &lease{key: leaseKey{weak.Make(db), src.ID()}, ending: make(chan struct{}), over: make(chan struct{}),
		wanted: make(chan struct{})}
	leases.LoadOrStore(l.key, l)
	return l
}

// claimed notes that the informer has its source.
func (l *lease) claimed() { leases.Store(l.key, l) }

// callGrace is how long a source that is wanted waits for calls of handlers.
const callGrace = 100 * time.Millisecond

// await waits until all handlers have ended. If another informer wants the source, it does
// not wait for long. The caller of that one may have a lock that a handler waits for, as a
// manager's cache does. A handler in its last call needs nothing of the source. A later
// acknowledgement has no effect: the pending keys in the file are no longer this informer's.
func (l *lease) await(told <-chan struct{}) {
	select {
	case <-told:
		return
	case <-l.wanted:
	}
	select {
	case <-told:
	case <-time.After(callGrace):
	}
}

// end notes that the source is free. An informer that has waited for that finds no lease, and
// registers its own.
func (l *lease) end() {
	leases.CompareAndDelete(l.key, l)
	close(l.over)
}

// freed waits for an informer that has the source and is ending. It says whether the
// source may be free.
func freed(db *boltstore.DB, src boltstore.Source) bool {
	l, ok := leases.Load(leaseKey{weak.Make(db), src.ID()})
	return !ok || l.(*lease).ends()
}

func (m *maker) informer(
	lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers,
) cache.SharedIndexInformer {
	all := cache.Indexers{}
	maps.Copy(all, m.o.Indexers)
	maps.Copy(all, indexers)
	indexers = all
	if resync <= 0 {
		resync = m.o.ResyncPeriod
	}
	inf, err := m.try(lw, exampleOf(example), resync, indexers)
	if err == nil {
		return inf
	}
	m.db.AddFallback(typeName(example), m.o.Strict, err)
	stock := cache.SharedIndexInformerOptions{ResyncPeriod: resync, Indexers: indexers,
		ObjectDescription: m.o.ObjectDescription}
	if !m.o.Strict {
		return cache.NewSharedIndexInformerWithOptions(lw, example, stock)
	}
	if m.o.Reflector.OnState != nil {
		m.o.Reflector.OnState(refusedState(err))
	}
	return &refused{cache.NewSharedIndexInformerWithOptions(refusing{err}, example, stock), err}
}

func (m *maker) try(lw cache.ListerWatcher, example runtime.Object, resync time.Duration, indexers cache.Indexers) (
	*Informer, error,
) {
	o := m.o
	switch {
	case o.Reflector.Source != nil:
		return nil, errors.New("informer: Options.Reflector.Source names one list, and these options are for many: " +
			"leave it out and give the rest.Config to reflector.WrapConfig")
	case o.Transform != nil:
		return nil, errors.New("informer: the manager or factory sets the transform: give it there, and its " +
			"version as Options.TransformVersion")
	}
	o.ResyncPeriod, o.Indexers = resync, indexers
	src, _, err := o.Reflector.Identify(lw, example)
	if errors.Is(err, reflector.ErrUnidentified) {
		return nil, fmt.Errorf("%w; a manager needs the wrapped config itself, as "+
			"ctrl.NewManager(reflector.WrapConfig(cfg), …), and an HTTPClient of its own must be made of it", err)
	}
	if err != nil {
		return nil, err
	}
	inf, err := NewSharedIndexInformer(m.db, lw, example, o)
	for range 3 { // another informer that waits may be faster
		if !errors.Is(err, boltstore.ErrClaimed) || !freed(m.db, src) {
			break
		}
		inf, err = NewSharedIndexInformer(m.db, lw, example, o)
	}
	return inf, err
}

// ends waits for an informer that is ending. It says whether the source is free. If nothing
// ends within a second, the cache that has the source goes on. The second passes in steps, since
// a process that stands still meanwhile must not take itself for one that has waited.
func (l *lease) ends() bool {
	ending := false
	for i := 0; i < 10 && !ending; i++ {
		select {
		case <-l.ending:
			ending = true
		case <-l.over: // before anything noticed that it was told to end
			return true
		case <-time.After(100 * time.Millisecond):
		}
	}
	if !ending {
		return false
	}
	l.want.Do(func() { close(l.wanted) })
	select {
	case <-l.over:
		return true
	case <-time.After(10 * time.Second):
		return false
	}
}

// exampleOf returns an empty object of the example's type, since a cache's caller may
// write into the object that it asked with. A nil example stays, to be refused.
func exampleOf(obj runtime.Object) runtime.Object {
	if objmeta.IsNil(obj) {
		return obj
	}
	switch o := obj.(type) {
	case *unstructured.Unstructured:
		e := &unstructured.Unstructured{}
		e.SetGroupVersionKind(o.GroupVersionKind())
		return e
	case *metav1.PartialObjectMetadata:
		return &metav1.PartialObjectMetadata{TypeMeta: o.TypeMeta}
	}
	t := reflect.TypeOf(obj)
	if t.Kind() != reflect.Pointer {
		return obj
	}
	e, ok := reflect.New(t.Elem()).Interface().(runtime.Object)
	if !ok {
		return obj
	}
	e.GetObjectKind().SetGroupVersionKind(obj.GetObjectKind().GroupVersionKind())
	return e
}

// named gives a tombstone without an object one that has its namespace and name, and nothing
// else: the last known state cannot be read. Handlers such as controller-runtime's drop a
// tombstone without an object, or panic.
func (inf *Informer) named(obj any) any {
	gone, ok := obj.(cache.DeletedFinalStateUnknown)
	if !ok || gone.Obj != nil {
		return obj
	}
	empty := exampleOf(inf.example).DeepCopyObject()
	if m := objmeta.Of(empty); m != nil {
		ns, name, _ := cache.SplitMetaNamespaceKey(gone.Key)
		m.SetNamespace(ns)
		m.SetName(name)
		gone.Obj = empty
	}
	return gone
}

func typeName(obj runtime.Object) string {
	if objmeta.IsNil(obj) {
		return fmt.Sprintf("%T", obj)
	}
	if gvk := obj.GetObjectKind().GroupVersionKind(); gvk.Kind != "" {
		return fmt.Sprintf("%T of %s", obj, gvk.GroupKind())
	}
	return fmt.Sprintf("%T", obj)
}

// refused is an informer that never syncs. Its watch error handler and its state say
// why.
type refused struct {
	cache.SharedIndexInformer
	err error
}

// State says why the informer does not sync.
func (r *refused) State() reflector.State { return refusedState(r.err) }

func refusedState(err error) reflector.State {
	return reflector.State{Phase: reflector.PhaseUnclaimed, Reason: err.Error()}
}

// refusing answers each request with the error.
type refusing struct{ err error }

func (r refusing) List(metav1.ListOptions) (runtime.Object, error)   { return nil, r.err }
func (r refusing) Watch(metav1.ListOptions) (watch.Interface, error) { return nil, r.err }
func (r refusing) ListWithContext(context.Context, metav1.ListOptions) (runtime.Object, error) {
	return nil, r.err
}
func (r refusing) WatchWithContext(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, r.err
}
func (refusing) IsWatchListSemanticsUnSupported() bool { return true }
