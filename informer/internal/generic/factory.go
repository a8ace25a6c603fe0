// Package generic has factories of informers for resources that a program names while it
// runs. They do the same as client-go's, over the file.
package generic

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/internal/stated"
	"github.com/kubewake/kubewake/reflector"
)

// Lists says what a factory lists, and how.
type Lists struct {
	// Client is asked whether it is a fake.
	Client any
	// Example is of the objects' type.
	Example runtime.Object
	// Namespace restricts the lists. Tweak changes the options of each list and watch,
	// or is nil.
	Namespace string
	Tweak     func(*metav1.ListOptions)
	List      func(ctx context.Context, gvr schema.GroupVersionResource, o metav1.ListOptions) (runtime.Object, error)
	Watch     func(ctx context.Context, gvr schema.GroupVersionResource, o metav1.ListOptions) (watch.Interface, error)
	// Describe names the objects of a resource in the log. nil: their type.
	Describe func(gvr schema.GroupVersionResource) string
	// Lister makes a lister over an indexer.
	Lister func(cache.Indexer, schema.GroupVersionResource) cache.GenericLister
}

// Factory is a factory of informers, one for each resource.
type Factory struct {
	lists       Lists
	resync      time.Duration
	transform   cache.TransformFunc
	source      *boltstore.Source // given by the program, for all lists
	newInformer func(schema.GroupVersionResource) newInformer

	mu           sync.Mutex
	informers    map[schema.GroupVersionResource]*resource
	shuttingDown bool
	running      sync.WaitGroup
}

// resource has the informer of a resource. It is made outside the factory's lock, since
// making it may call index functions, and these may ask the factory.
type resource struct {
	informer func() cache.SharedIndexInformer // makes it once
	gvr      schema.GroupVersionResource
	lists    Lists
	started  bool
}

var _ informers.GenericInformer = &resource{}

// Informer implements informers.GenericInformer.
func (r *resource) Informer() cache.SharedIndexInformer { return r.informer() }

// Lister implements informers.GenericInformer.
func (r *resource) Lister() cache.GenericLister {
	return r.lists.Lister(r.informer().GetIndexer(), r.gvr)
}

// New returns a factory over the file. The error is reflector.ErrUnidentified if nothing
// shows what the client lists.
func New(db *boltstore.DB, resync time.Duration, l Lists, o informer.Options) (*Factory, error) {
	f := &Factory{lists: l, resync: resync, transform: o.Transform, source: o.Reflector.Source,
		informers: map[schema.GroupVersionResource]*resource{}}
	o.Transform, o.Reflector.Source = nil, nil
	if db == nil {
		return nil, errors.New("there is no file, but a nil DB: give the one that boltstore.Open has returned, and " +
			"look at its error")
	}
	if _, _, err := o.Reflector.Identify(f.listWatch(schema.GroupVersionResource{Version: "v1",
		Resource: "namespaces"}), l.Example); err != nil {
		return nil, err
	}
	f.newInformer = func(gvr schema.GroupVersionResource) newInformer {
		o := o
		if l.Describe != nil {
			o.ObjectDescription = cmp.Or(o.ObjectDescription, l.Describe(gvr))
		}
		return informer.ForControllerRuntime(db, o)
	}
	return f, nil
}

type newInformer = func(cache.ListerWatcher, runtime.Object, time.Duration, cache.Indexers) cache.SharedIndexInformer

func (f *Factory) listWatch(gvr schema.GroupVersionResource) cache.ListerWatcher {
	tweaked := func(o metav1.ListOptions) metav1.ListOptions {
		if f.lists.Tweak != nil {
			f.lists.Tweak(&o)
		}
		return o
	}
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return f.lists.List(ctx, gvr, tweaked(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return f.lists.Watch(ctx, gvr, tweaked(o))
		},
	}, f.lists.Client)
	if f.source == nil && !stated.Fake(f.lists.Client) {
		return lw
	}
	src := stated.Source(gvr, f.lists.Namespace, f.lists.Tweak, reflector.FormOf(f.lists.Example))
	if f.source != nil {
		src.Cluster = f.source.Cluster
	}
	return stated.ListerWatcher(lw, src)
}

// ForResource returns the informer of a resource, and makes it if there is none.
func (f *Factory) ForResource(gvr schema.GroupVersionResource) informers.GenericInformer {
	f.mu.Lock()
	r, ok := f.informers[gvr]
	if !ok {
		r = &resource{gvr: gvr, lists: f.lists, informer: sync.OnceValue(func() cache.SharedIndexInformer {
			inf := f.newInformer(gvr)(f.listWatch(gvr), f.lists.Example, f.resync,
				cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			if f.transform != nil {
				_ = inf.SetTransform(f.transform) // it has not started
			}
			return inf
		})}
		f.informers[gvr] = r
	}
	f.mu.Unlock()
	r.informer()
	return r
}

// Start runs the informers that have not been started, until stop is closed.
func (f *Factory) Start(stop <-chan struct{}) { f.StartWithContext(wait.ContextForChannel(stop)) }

// StartWithContext runs the informers that have not been started, until ctx ends.
func (f *Factory) StartWithContext(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.shuttingDown {
		return
	}
	for _, r := range f.informers {
		if !r.started {
			r.started = true
			f.running.Go(func() { r.informer().RunWithContext(ctx) })
		}
	}
}

// WaitForCacheSync waits until the started informers have synced, or stop is closed.
func (f *Factory) WaitForCacheSync(stop <-chan struct{}) map[schema.GroupVersionResource]bool {
	f.mu.Lock()
	started := maps.Clone(f.informers)
	maps.DeleteFunc(started, func(_ schema.GroupVersionResource, r *resource) bool { return !r.started })
	f.mu.Unlock()
	synced := map[schema.GroupVersionResource]bool{}
	for gvr, r := range started {
		select {
		case <-r.informer().HasSyncedChecker().Done():
		case <-stop:
		}
		synced[gvr] = r.informer().HasSynced()
	}
	return synced
}

// Shutdown waits for the informers to end. After that none can be started.
func (f *Factory) Shutdown() {
	f.mu.Lock()
	f.shuttingDown = true
	f.mu.Unlock()
	f.running.Wait()
}
