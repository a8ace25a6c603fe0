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

// handle is the only way to the file. A compaction and a change of keys put another file
// beneath it. A panic or memory fault out of bbolt becomes ErrDamaged. From then on nothing
// is written: bbolt does not notice damage, and could make it worse.
type handle struct {
	path string       // the DB's, for errors
	mu   sync.RWMutex // held for reading while a read takes now, for writing by put
	now  atomic.Pointer[boltFile]

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

	// damage is the first errTripped. tripped, nil in a file that is only read, is called
	// with it.
	damage  atomic.Pointer[error]
	tripped func(error)

	// noteInUse notes in the file that it is in use. It runs in the first write
	// transaction, also after a compaction. notedInUse says that it has run. writeMu guards it.
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

// noted notes damage in the file's pages. It returns err.
func (h *handle) noted(err error) error {
	if h.tripped == nil || !errors.Is(err, errTripped) {
		return err
	}
	first := fmt.Errorf("boltstore: %s: %w; nothing more is written: start the program again, which saves "+
		"what verifies",
		h.path, err)
	if h.damage.CompareAndSwap(nil, &first) {
		h.tripped(first)
	}
	return err
}

// view runs fn in a read transaction. fn must not call user code. Its arguments are valid
// only inside it.
func (h *handle) view(fn func(tx *bolt.Tx) error) error {
	h.mu.RLock()
	b := h.now.Load()
	if b != nil {
		b.readers.Add(1)
	}
	h.mu.RUnlock()
	if b == nil {
		return ErrClosed
	}
	defer b.readers.Done()
	err := trip(func() error { return b.View(fn) })
	if h.late != nil && errors.Is(err, ErrDamaged) {
		err = fmt.Errorf("%w; open %s%s", err, b.Path(), savedByProgram)
	}
	return h.noted(err)
}

// alone is view while no write transaction is under way. A reader beside a writer keeps
// pages from being used again, which makes the file grow; alone does not.
func (h *handle) alone(fn func(tx *bolt.Tx) error) error {
	h.writeMu.Lock()
	defer h.writeMu.Unlock()
	return h.view(fn)
}

// savedByProgram is what to do with a damaged file that was opened for reading.
const savedByProgram = " with the program that uses it, which saves as much as possible, " +
	"or move it away to have everything read from the server"

// update runs fn in a write transaction. It calls visible, if not nil, once readers see
// what fn wrote and before the next write begins.
//
// Memory must follow the file. So visible is also called when the disk reports an error
// after bbolt has written its meta page. That error is returned: the write may not
// survive a power failure until a later commit succeeds.
func (h *handle) update(fn func(tx *bolt.Tx) error, visible func()) error {
	h.writeMu.Lock()
	defer h.writeMu.Unlock()
	b := h.now.Load()
	if b == nil || h.clean {
		return ErrClosed
	}
	if damage := h.damage.Load(); damage != nil {
		return *damage
	}
	id, last := 0, b.last.Load()
	defer h.writing.Store(0)
	var written *bolt.Tx
	began := h.counters.begin()
	err := trip(func() error {
		return b.write(func(tx *bolt.Tx) error {
			written = tx
			if id = tx.ID(); last > 0 && int64(id) != last+1 {
				return errOverwritten
			}
			h.writing.Store(int64(id))
			if err := h.prepare(tx); err != nil {
				return err
			}
			if err := fn(tx); err != nil {
				return err
			}
			return b.writable()
		})
	})
	err = osfile.SaySync(sayMaxSize(err, b.MaxSize), h.path)
	if errors.Is(err, layout.ErrCircle) {
		err = fmt.Errorf("%w: %w", errTripped, err)
	}
	if err == nil || b.sees(id) {
		b.last.Store(int64(id))
		h.notedInUse = h.noteInUse != nil
		if visible != nil {
			visible()
		}
	}
	h.counters.end(began, written, err)
	return h.noted(err)
}

// prepare is what each write transaction begins with.
func (h *handle) prepare(tx *bolt.Tx) error {
	if h.hook != nil {
		if err := h.hook(tx); err != nil {
			return err
		}
	}
	if h.noteInUse == nil || h.notedInUse {
		return nil
	}
	err := h.noteInUse(tx)
	if errors.Is(err, ErrDamaged) { // the header was lost while the file was open
		err = fmt.Errorf("%w: %w", errTripped, err)
	}
	return err
}

// sayMaxSize adds to an error what to do if the file may not grow.
func sayMaxSize(err error, size int) error {
	switch {
	case !errors.Is(err, berrors.ErrMaxSizeReached):
	case strconv.IntSize == 32 && size == mostNarrow:
		err = fmt.Errorf("%w: the file of a 32-bit program has at most %d bytes, use a 64-bit one or keep less "+
			"in the file",
			err, size)
	default:
		err = fmt.Errorf("%w: Options.MaxSize is %d bytes, raise it (kubewake: --max-size), "+
			"or keep less history (Options.JournalBytes; kubewake: --journal-bytes)", err, size)
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
	b := h.now.Load()
	if b == nil {
		return ErrClosed
	}
	return osfile.SaySync(b.Sync(), h.path)
}

// put changes the file beneath the handle, and returns the one of before. Nothing else
// does. The caller holds writeMu, so that nothing is written meanwhile. Reads go on in the
// file in which they began; Close of that file waits for them.
func (h *handle) put(b *boltFile) (old *boltFile) {
	if b != nil {
		if id, err := b.newest(); err == nil { // otherwise the next transaction meets the error
			b.last.Store(int64(id))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notedInUse = false
	return h.now.Swap(b)
}

// swap is put for callers that do not hold writeMu. nil closes the handle.
func (h *handle) swap(b *boltFile) (old *boltFile) {
	h.writeMu.Lock()
	defer h.writeMu.Unlock()
	return h.put(b)
}

// trip runs fn in bbolt. A panic becomes errTripped, and a closed file ErrClosed.
func trip(fn func() error) error {
	err := faults.Catch(errTripped, fn)
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return ErrClosed
	}
	return err
}
