package boltstore

import (
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// Claimed is a source that this process has claimed: a [Store] that can also be written.
// It is the cache.Indexer that an informer's GetIndexer returns. Its parts serve packages
// fifo, reflector, informer and stores, and may change in any release. All methods are safe
// for concurrent use.
type Claimed struct {
	*Store

	Feed     Feed
	Upstream Upstream
	Delivery Delivery
	Filled   Filled
}

// Feed is for the queue that brings a source's changes, and takes what was committed.
type Feed struct{ *source }

// Upstream is for whoever follows the source's server: lists, and what is known of the
// server, its cluster and its clock.
type Upstream struct{ *source }

// Delivery is for whoever tells handlers of the changes: the names of durable ones, and how
// far plain ones were told.
type Delivery struct{ *source }

// Filled is for stores that a program fills by itself.
type Filled struct{ *source }

func newClaimed(s *Store) *Claimed {
	return &Claimed{Store: s, Feed: Feed{s.source}, Upstream: Upstream{s.source}, Delivery: Delivery{s.source},
		Filled: Filled{s.source}}
}

var (
	_ cache.Indexer          = &Claimed{}
	_ cache.TransactionStore = &Claimed{}
)

// Clock is the file's clock.
func (s *Claimed) Clock() clock.WithTicker { return s.db.opts.Clock }

// Logger is the file's logger.
func (s *Claimed) Logger() klog.Logger { return s.db.log() }
