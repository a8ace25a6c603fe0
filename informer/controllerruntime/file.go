package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kubewake/kubewake/boltstore"
)

// file is the file of a manager.
type file struct {
	*boltstore.DB
	closed atomic.Bool
}

// Close closes the file.
func (f *file) Close() error {
	f.closed.Store(true)
	return f.DB.Close()
}

// caches returns newCache, nil for the default, for caches over the file.
func (f *file) caches(newCache cache.NewCacheFunc, strict bool) cache.NewCacheFunc {
	if newCache == nil {
		newCache = cache.New
	}
	return func(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
		kept, informers := &fileCache{file: f, strict: strict}, o.NewInformer
		o.NewInformer = func(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration,
			indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			kept.used.Store(true)
			return informers(lw, example, resync, indexers)
		}
		c, err := newCache(cfg, o)
		if err != nil {
			return nil, err
		}
		kept.Cache = c
		return kept, nil
	}
}

// fileCache is a cache over a file.
type fileCache struct {
	cache.Cache
	file   *file
	strict bool
	used   atomic.Bool // it has asked for an informer of the file
	passed sync.Once   // it has made one without
}

// List implements client.Reader. The stores have no error with which to list a closed file,
// and an empty list would look like deletes.
func (c *fileCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := c.Cache.List(ctx, list, opts...)
	if err == nil && c.file.closed.Load() {
		return fmt.Errorf("controllerruntime: the manager has ended: %s: %w", c.file.Path(), boltstore.ErrClosed)
	}
	return c.inFile(err)
}

// Get implements client.Reader.
func (c *fileCache) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	return c.inFile(c.Cache.Get(ctx, key, obj, opts...))
}

// GetInformer implements cache.Informers.
func (c *fileCache) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (
	cache.Informer, error,
) {
	inf, err := c.Cache.GetInformer(ctx, obj, opts...)
	return inf, c.inFile(err)
}

// GetInformerForKind implements cache.Informers.
func (c *fileCache) GetInformerForKind(
	ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption,
) (cache.Informer, error) {
	inf, err := c.Cache.GetInformerForKind(ctx, gvk, opts...)
	return inf, c.inFile(err)
}

// inFile is called when an informer is there, unless there is an error. It notes once that
// the cache does not make its informers by the function that it was given.
func (c *fileCache) inFile(err error) error {
	if err != nil || c.used.Load() {
		return err
	}
	err = errors.New("controllerruntime: the NewCache of the options makes its cache without the NewInformer of " +
		"the options that it is given, so the file is not used")
	c.passed.Do(func() { c.file.AddFallback(fmt.Sprintf("%T", c.Cache), c.strict, err) })
	if c.strict {
		return err
	}
	return nil
}

// newInformer is the type of cache.Options.NewInformer.
type newInformer func(toolscache.ListerWatcher, runtime.Object, time.Duration,
	toolscache.Indexers) toolscache.SharedIndexInformer

// inMemory returns a function that leaves the kinds of InMemory to client-go's informers, in
// caches of any scheme.
func (f File) inMemory(s *runtime.Scheme) (func(*runtime.Scheme, newInformer) newInformer, error) {
	kinds := map[schema.GroupKind]bool{}
	for _, obj := range f.InMemory {
		if isNil(obj) {
			return nil, errors.New("controllerruntime: File.InMemory has a nil object")
		}
		gvk, err := apiutil.GVKForObject(obj, s)
		if err != nil {
			return nil, fmt.Errorf("controllerruntime: File.InMemory: %w", err)
		}
		kinds[gvk.GroupKind()] = true
	}
	return func(s *runtime.Scheme, kept newInformer) newInformer {
		return func(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration,
			indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			if gvk, err := apiutil.GVKForObject(example, s); err == nil && kinds[gvk.GroupKind()] {
				return toolscache.NewSharedIndexInformer(lw, example, resync, indexers)
			}
			return kept(lw, example, resync, indexers)
		}
	}, nil
}
