package boltstore

import (
	"context"
	"errors"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
)

const (
	keeperEvery = time.Minute
	// keeperGrace is how long a file must be open before sources are collected, and how
	// long a failed task waits.
	keeperGrace = time.Hour
)

// keeper maintains the file in its own goroutine: compaction and collection. The
// committer lets it look after commits, at most once a minute.
type keeper struct {
	db     *DB
	opened time.Time
	wg     sync.WaitGroup

	mu      sync.Mutex
	next    time.Time
	collect time.Time // next look for sources to collect
	running bool
}

func (k *keeper) init(db *DB) {
	k.db, k.opened = db, db.opts.Clock.Now()
	k.next, k.collect = k.opened.Add(keeperEvery), k.opened.Add(keeperGrace)
}

// committed is called by the committer, which must not wait.
func (k *keeper) committed(now time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.running || now.Before(k.next) {
		return
	}
	k.next = now.Add(keeperEvery)
	collect := k.db.opts.CollectAfter > 0 && !now.Before(k.collect)
	compact := k.wasteful()
	if !collect && !compact {
		return
	}
	if collect {
		k.collect = now.Add(keeperGrace)
	}
	k.running = true
	k.wg.Go(func() { k.run(collect, compact) })
}

func (k *keeper) run(collect, compact bool) {
	db := k.db
	var err error
	if collect {
		_, err = db.collecting().collect(db.whileOpen.ctx, db.opts.CollectAfter)
	}
	if compact && err == nil {
		var c Compaction
		if c, err = db.Compact(db.whileOpen.ctx, nil); err == nil {
			db.log().Info("Compacted the file", "file", db.path, "before", c.Before, "after", c.After, "took", c.Took)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.running = false
	if err != nil && !errors.Is(err, ErrClosed) && !errors.Is(err, context.Canceled) {
		k.next = db.opts.Clock.Now().Add(keeperGrace)
		db.log().Error(err, "Maintenance of the file failed and left it as it was; it will be tried again later",
			"file", db.path)
	}
}

// wasteful says whether the file has enough free pages to be compacted.
func (k *keeper) wasteful() bool {
	o := k.db.opts
	if o.compactRatio < 0 {
		return false
	}
	free, size, err := k.db.h.usage()
	return err == nil && size >= o.compactMinSize && float64(free) > o.compactRatio*float64(size)
}

// usage returns the size of the file's pages in bytes, and how much of it is free.
func (h *handle) usage() (free, size int64, err error) {
	err = h.view(func(tx *bolt.Tx) error {
		st := tx.DB().Stats()
		free = int64(st.FreePageN+st.PendingPageN) * int64(tx.DB().Info().PageSize)
		size = tx.Size()
		return nil
	})
	return free, size, err
}

// wait returns once no task runs. The committer must have ended.
func (k *keeper) wait() { k.wg.Wait() }
