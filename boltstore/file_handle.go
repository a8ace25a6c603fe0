package boltstore

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/osfile"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// handle is the only way to the file. The file beneath it can be swapped. A panic or
// memory fault out of bbolt becomes ErrDamaged.
type handle struct {
	path string                   // the DB's, for errors
	mu   sync.RWMutex             // held for reading by each transaction, for writing by a swap
	db   *boltFile                // changed by put only
	now  atomic.Pointer[boltFile] // the same, without mu

	// seal has the file's data key, which does not change after Open. It is nil in a plain
	// file. rotate says that a new key is due.
	seal   *seal.Sealer
	keys   *seal.Envelope
	rotate bool

	// late has the pages of a file that was opened for reading which are verified when
	// they are read. Otherwise it is nil.
	late *pages.Late

	writeMu sync.Mutex // held for a write transaction and for the changes in memory that follow it
	// writing is the id of the write transaction under way, from before readers of the
	// file see it until memory follows; otherwise 0.
	writing atomic.Int64

	// long is held for reading by reads that may take as long as the disk, and for
	// writing by a swap. It is taken before writeMu and mu: a swap that held these while
	// it waited for such a read would stop writers and all new readers.
	long sync.RWMutex

	// tripped is called after a panic or memory fault out of bbolt, outside all locks.
	// met, the file beneath the handle, then has damage that bbolt does not notice.
	tripped func(err error, met *boltFile)

	// noteInUse notes in the file that it is in use. It runs in the first write
	// transaction, also after a swap. notedInUse says that it has run. writeMu guards it.
	noteInUse  func(tx *bolt.Tx) error
	notedInUse bool

	// clean says that the file counts as closed in order: nothing more is written, since
	// it might reach the disk only in part. writeMu guards it.
	clean bool

	checked checkedNames // of db's sources; writeMu guards it

	counters *counters // of write transactions

	// hook is set by tests. It runs first in each write transaction and can fail it, as
	// a disk would.
	hook func(tx *bolt.Tx) error
}

// errTripped is the ErrDamaged of a panic or memory fault out of bbolt.
var errTripped = fmt.Errorf("%w: bbolt", ErrDamaged)

// view runs fn in a read transaction. fn must be short and must not call user code. Its
// arguments are valid only inside it.
func (h *handle) view(fn func(tx *bolt.Tx) error) error {
	return h.watch(func() error { return h.quiet(fn) })
}

// viewLong is view for a read that takes long. It waits for a swap under way.
func (h *handle) viewLong(fn func(tx *bolt.Tx) error) error {
	return h.watch(func() error {
		h.long.RLock()
		defer h.long.RUnlock()
		return h.quiet(fn)
	})
}

// alone is view while no write transaction is under way. A reader beside a writer keeps
// pages from being used again, which makes the file grow; alone does not.
func (h *handle) alone(fn func(tx *bolt.Tx) error) error {
	return h.watch(func() error {
		h.writeMu.Lock()
		defer h.writeMu.Unlock()
		return h.quiet(fn)
	})
}

// quiet is view within watch. Its caller may hold writeMu or long.
func (h *handle) quiet(fn func(tx *bolt.Tx) error) error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.db == nil {
		return ErrClosed
	}
	err := trip(func() error { return h.db.View(fn) })
	if h.late != nil && errors.Is(err, ErrDamaged) {
		err = fmt.Errorf("%w; open %s%s", err, h.db.Path(), healedByProgram)
	}
	return err
}

// healedByProgram is what to do with a damaged file that was opened for reading.
const healedByProgram = " with the program that uses it, which saves as much as possible, or move it away to have everything read from the server"

// writeHealed calls write. If write meets damage, and the file is healed, it calls write
// once more, for the healed file.
func (db *DB) writeHealed(write func() error) error {
	file := db.replaced.Load()
	err := write()
	if errors.Is(err, errTripped) && db.replaced.Load() != file {
		err = write()
	}
	return err
}

// update runs fn in a write transaction. It calls visible, if not nil, once readers see
// what fn wrote and before the next write begins.
//
// Memory must follow the file. So visible is also called when the disk reports an error
// after bbolt has written its meta page. That error is returned: the write may not
// survive a power failure until a later commit succeeds.
func (h *handle) update(fn func(tx *bolt.Tx) error, visible func()) error {
	return h.watch(func() error {
		h.writeMu.Lock()
		defer h.writeMu.Unlock()
		h.mu.RLock()
		defer h.mu.RUnlock()
		if h.db == nil || h.clean {
			return ErrClosed
		}
		id, last := 0, h.db.last.Load()
		defer h.writing.Store(0)
		var written *bolt.Tx
		began := h.counters.begin()
		err := trip(func() error {
			return h.db.guard(true, h.db.Update, func(tx *bolt.Tx) error {
				written = tx
				if id = tx.ID(); last > 0 && int64(id) != last+1 {
					return errOverwritten
				}
				h.writing.Store(int64(id))
				if h.hook != nil {
					if err := h.hook(tx); err != nil {
						return err
					}
				}
				if h.noteInUse != nil && !h.notedInUse {
					if err := h.noteInUse(tx); errors.Is(err, ErrDamaged) {
						return fmt.Errorf("%w: %w", errTripped, err) // the header was lost while the file was open
					} else if err != nil {
						return err
					}
				}
				if err := fn(tx); err != nil {
					return err
				}
				return h.db.writable()
			})
		})
		err = osfile.SaySync(sayMaxSize(err, h.db.MaxSize), h.path)
		if errors.Is(err, layout.ErrCircle) {
			err = fmt.Errorf("%w: %w", errTripped, err)
		}
		if err == nil || h.sees(id) {
			h.db.last.Store(int64(id))
			h.notedInUse = h.noteInUse != nil
			if visible != nil {
				visible()
			}
		}
		h.counters.end(began, written, err)
		return err
	})
}

// sayMaxSize adds to an error what to do if the file may not grow.
func sayMaxSize(err error, size int) error {
	switch {
	case !errors.Is(err, berrors.ErrMaxSizeReached):
	case strconv.IntSize == 32 && size == mostNarrow:
		err = fmt.Errorf("%w: the file of a 32-bit program has at most %d bytes, use a 64-bit one or keep less in the file",
			err, size)
	default:
		err = fmt.Errorf("%w: Options.MaxSize is %d bytes, raise it (kubewake: --max-size), "+
			"or keep less history (Options.JournalBytes; kubewake: --journal-bytes)", err, size)
	}
	return err
}

func (h *handle) watch(fn func() error) error {
	met := h.now.Load()
	err := fn()
	if errors.Is(err, errTripped) && h.tripped != nil {
		h.tripped(err, met)
	}
	return err
}

// settled returns once memory has followed the transaction with that id, which a reader
// has seen.
func (h *handle) settled(id int) {
	if h.writing.Load() == int64(id) {
		h.writeMu.Lock()
		defer h.writeMu.Unlock()
	}
}

// sync syncs commits that were made without a sync.
func (h *handle) sync() error {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.db == nil {
		return ErrClosed
	}
	return osfile.SaySync(h.db.Sync(), h.path)
}

// sees says whether readers see the write transaction with that id.
func (h *handle) sees(id int) (yes bool) {
	_ = faults.Contain(func() error {
		return h.db.View(func(tx *bolt.Tx) error { yes = tx.ID() == id; return nil })
	})
	return yes
}

// swap puts another file beneath the handle and returns the old one once no transaction
// uses it. nil closes the handle. It waits for the writer first: a writer may wait for
// a reader, which a waiting swap would keep out. Callers that hold the locks already use
// put (healing) or exchange (compaction).
func (h *handle) swap(b *boltFile) *boltFile {
	h.long.Lock()
	defer h.long.Unlock()
	h.writeMu.Lock()
	defer h.writeMu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	old := h.db
	h.put(b)
	return old
}

// trip runs fn in bbolt. A panic becomes errTripped, and a closed file ErrClosed.
func trip(fn func() error) error {
	err := faults.Catch(errTripped, fn)
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}
