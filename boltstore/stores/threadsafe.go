package stores

import (
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// NewThreadSafeStore takes the place of cache.NewThreadSafeStore: the caller names the
// key of each write, whatever the object's name. The indices are those of the claim. s
// may also be an informer's store, which refuses writes while it runs.
//
// client-go's methods return no error, and never fail. Here an object may have another Go
// type, the disk may be full, or the file closed. failed is called with each such error,
// on the goroutine of the call; nil logs them. A read that fails finds nothing.
//
// Replace stores all objects or none. Transaction stores, in one commit, those objects
// that can be stored. An object whose index function fails has no values in that index;
// client-go panics. If the source's Go type has changed, the store begins empty, unless
// the claim has ServeOutdated; the file's objects are removed. An object that damage
// has taken is reported when it is read. Replace mends the source. So does making the
// store again after such an object was overwritten.
func NewThreadSafeStore(s *boltstore.Claimed, failed func(error)) (cache.ThreadSafeStoreWithTransaction, error) {
	if s.Filled.FilledByProgram() {
		if err := current(s); err != nil {
			return nil, err
		}
		if err := s.Filled.Mend(); err != nil {
			return nil, err
		}
	}
	if failed == nil {
		failed = func(err error) { s.Logger().Error(err, "A call of a store failed", "source", s.Source().String()) }
	}
	return &keyed{s, failed}, nil
}

// keyed is a store by key.
type keyed struct {
	s      *boltstore.Claimed
	failed func(error)
}

func (k *keyed) check(err error) {
	if err != nil {
		k.failed(err)
	}
}

func (k *keyed) write(typ cache.TransactionType, key string, obj any) {
	k.Transaction(cache.ThreadSafeStoreTransaction{Transaction: cache.Transaction{Object: obj, Type: typ}, Key: key})
}

// Add implements cache.ThreadSafeStore.
func (k *keyed) Add(key string, obj any) { k.write(cache.TransactionTypeAdd, key, obj) }

// Update implements cache.ThreadSafeStore.
func (k *keyed) Update(key string, obj any) { k.write(cache.TransactionTypeUpdate, key, obj) }

// Delete implements cache.ThreadSafeStore.
func (k *keyed) Delete(key string) { k.DeleteWithObject(key, nil) }

// DeleteWithObject implements cache.ThreadSafeStore.
func (k *keyed) DeleteWithObject(key string, obj any) {
	k.write(cache.TransactionTypeDelete, key, obj)
}

// Transaction implements cache.ThreadSafeStoreWithTransaction.
func (k *keyed) Transaction(txns ...cache.ThreadSafeStoreTransaction) {
	k.check(k.s.Filled.TransactionByKey(txns...))
}

// Replace implements cache.ThreadSafeStore.
func (k *keyed) Replace(objs map[string]any, resourceVersion string) {
	k.check(k.s.Filled.ReplaceByKey(objs, resourceVersion))
}

// Get implements cache.ThreadSafeStore.
func (k *keyed) Get(key string) (any, bool) {
	obj, exists, err := k.s.GetByKey(key)
	k.check(err)
	return obj, exists
}

// List implements cache.ThreadSafeStore.
func (k *keyed) List() []any {
	objs, err := k.s.ListErr()
	k.check(err)
	return objs
}

// ListKeys implements cache.ThreadSafeStore.
func (k *keyed) ListKeys() []string {
	keys, err := k.s.ListKeysErr()
	k.check(err)
	return keys
}

// Index implements cache.ThreadSafeStore.
func (k *keyed) Index(name string, obj any) ([]any, error) { return k.s.Index(name, obj) }

// IndexKeys implements cache.ThreadSafeStore.
func (k *keyed) IndexKeys(name, value string) ([]string, error) { return k.s.IndexKeys(name, value) }

// ByIndex implements cache.ThreadSafeStore.
func (k *keyed) ByIndex(name, value string) ([]any, error) { return k.s.ByIndex(name, value) }

// ListIndexFuncValues implements cache.ThreadSafeStore.
func (k *keyed) ListIndexFuncValues(name string) []string { return k.s.ListIndexFuncValues(name) }

// GetIndexers implements cache.ThreadSafeStore.
func (k *keyed) GetIndexers() cache.Indexers { return k.s.GetIndexers() }

// AddIndexers implements cache.ThreadSafeStore.
func (k *keyed) AddIndexers(add cache.Indexers) error { return k.s.AddIndexers(add) }

// Bookmark implements cache.ThreadSafeStore.
func (k *keyed) Bookmark(resourceVersion string) { k.check(k.s.Filled.BookmarkErr(resourceVersion)) }

// LastStoreSyncResourceVersion implements cache.ThreadSafeStore.
func (k *keyed) LastStoreSyncResourceVersion() string { return k.s.LastStoreSyncResourceVersion() }

// Resync implements cache.ThreadSafeStore.
func (k *keyed) Resync() error { return nil }
