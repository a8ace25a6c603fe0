package boltstore

import (
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Claimed is a source that this process has claimed: a [Store] that can also be written.
// It is the cache.Indexer that an informer's GetIndexer returns. Its other methods serve
// packages fifo, reflector and informer, and may change in any release. All methods are
// safe for concurrent use.
//
// It is one type because whoever holds the claim may use all of it, and nobody else may.
type Claimed struct{ *Store }

var (
	_ cache.Indexer          = &Claimed{}
	_ cache.TransactionStore = &Claimed{}
)

// Clock is the file's clock.
func (s *Claimed) Clock() clock.WithTicker { return s.db.opts.Clock }

// Logger is the file's logger.
func (s *Claimed) Logger() klog.Logger { return s.db.log() }
