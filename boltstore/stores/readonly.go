package stores

import (
	"errors"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// ErrReadOnly is the error of a write to a store that [ReadOnly] returned.
var ErrReadOnly = errors.New("stores: this store only reads; write to the store of the informer, or of a claim")

// ReadOnly makes an indexer of a store that is only read, for listers over DB.View:
//
//	pods := listers.NewPodLister(stores.ReadOnly(view))
//
// Writes fail with [ErrReadOnly]. A view answers ByIndex and IndexKeys for the indices
// that the file has. It answers Index only for the namespace index, whose function it
// knows.
func ReadOnly(s *boltstore.Store) cache.Indexer { return readOnly{s} }

type readOnly struct{ *boltstore.Store }

// Add implements cache.Indexer.
func (readOnly) Add(any) error { return ErrReadOnly }

// Update implements cache.Indexer.
func (readOnly) Update(any) error { return ErrReadOnly }

// Delete implements cache.Indexer.
func (readOnly) Delete(any) error { return ErrReadOnly }

// Replace implements cache.Indexer.
func (readOnly) Replace([]any, string) error { return ErrReadOnly }

// AddIndexers implements cache.Indexer.
func (readOnly) AddIndexers(cache.Indexers) error { return ErrReadOnly }

// Bookmark implements cache.Indexer. It does nothing.
func (readOnly) Bookmark(string) {}

// Resync implements cache.Indexer.
func (readOnly) Resync() error { return nil }
