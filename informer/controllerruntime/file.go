package controllerruntime

import (
	"context"
	"errors"
	"fmt"
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
func (f *file) caches(newCache cache.NewCacheFunc) cache.NewCacheFunc {
	if newCache == nil {
		newCache = cache.New
	}
	return func(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
		c, err := newCache(cfg, o)
		if err != nil {
			return nil, err
		}
		return &fileCache{c, f}, nil
	}
}

// fileCache is a cache over a file.
type fileCache struct {
	cache.Cache
	file *file
}

// List implements client.Reader. The stores have no error with which to list a closed file,
// and an empty list would look like deletes.
func (c *fileCache) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	err := c.Cache.List(ctx, list, opts...)
	if err == nil && c.file.closed.Load() {
		return fmt.Errorf("controllerruntime: the manager has ended: %s: %w", c.file.Path(), boltstore.ErrClosed)
	}
	return err
}

// newInformer is the type of cache.Options.NewInformer.
type newInformer func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer

// inMemory returns a function that leaves the kinds of InMemory to client-go's informers.
func (f File) inMemory(s *runtime.Scheme) (func(newInformer) newInformer, error) {
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
	return func(kept newInformer) newInformer {
		return func(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			if gvk, err := apiutil.GVKForObject(example, s); err == nil && kinds[gvk.GroupKind()] {
				return toolscache.NewSharedIndexInformer(lw, example, resync, indexers)
			}
			return kept(lw, example, resync, indexers)
		}
	}, nil
}
