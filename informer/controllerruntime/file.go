package controllerruntime

import (
	"context"
	"fmt"
	"sync/atomic"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
