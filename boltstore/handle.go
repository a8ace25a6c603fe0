package boltstore

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// handle is the only way to the file. The file beneath it can be swapped; a
// panic or memory fault out of bbolt becomes ErrDamaged.
type handle struct {
	mu sync.RWMutex // held for reading by each transaction, for writing by a swap
	db *bolt.DB

	writeMu sync.Mutex // held over a transaction and what its success changes in memory

	// before, if set by a test, runs ahead of each write transaction and can
	// fail it, as a disk would.
	before func() error
}

// view runs fn in a read transaction. fn must be short and must not call user
// code; what it is handed is valid only inside it.
func (h *handle) view(fn func(tx *bolt.Tx) error) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.db == nil {
		return ErrClosed
	}
	return contain(func() error { return h.db.View(fn) })
}

// update runs fn in a write transaction and, if it was committed, done before
// any other write begins.
func (h *handle) update(fn func(tx *bolt.Tx) error, done func()) error {
	h.writeMu.Lock()
	defer h.writeMu.Unlock()
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.db == nil {
		return ErrClosed
	}
	if h.before != nil {
		if err := h.before(); err != nil {
			return err
		}
	}
	if err := contain(func() error { return h.db.Update(fn) }); err != nil {
		return err
	}
	if done != nil {
		done()
	}
	return nil
}

// swap puts another file beneath the handle, nil to close it, and returns the
// one before once no transaction uses it.
func (h *handle) swap(db *bolt.DB) *bolt.DB {
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.db
	h.db = db
	return old
}

// contain turns a panic or a memory fault in this goroutine into ErrDamaged.
func contain(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: bbolt: %v", ErrDamaged, r)
		}
	}()
	err = fn()
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}
