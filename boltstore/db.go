package boltstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore/internal/beside"
	"github.com/kubewake/kubewake/boltstore/internal/osfile"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// DB is one open file. Its methods may be called concurrently. Only one process can have
// a file open for writing. A DB has goroutines only while a source is claimed or
// maintenance runs after a commit.
//
// It is one type because everything in it belongs to the one open file and its locks.
// Its roles have types that hold the DB: opening, replacing, converting, collecting.
type DB struct {
	path   string // absolute, so that it leads to the file wherever the program goes
	given  string // as given to Open, for errors
	opts   Options
	files  *osfile.Files // operations on files, which tests can observe
	beside beside.Files
	device *device
	since  struct { // when Open was called
		at    time.Time
		slept time.Duration // how long the machine had slept by then
	}
	h      handle
	commit *committer
	master *seal.Master // nil without a keyset

	plainSecrets, unversioned, newerServer, fullOfHistory sync.Once // logged once

	at     pathWatch
	judged judged // the file that Open looked at last

	relisting chan struct{} // one element for each relist under way, at most maxRelists

	objects objectMemory

	keeper    keeper
	whileOpen whileOpen
	fell      fallbacks

	commits commits

	// claiming is held for reading while a claim begins, and for writing while a source
	// is removed. It is taken before all other locks.
	claiming sync.RWMutex

	mu     sync.Mutex
	claims map[string]*source
	inUse  atomic.Int64 // len(claims)
	parsed sync.Map     // weak.Pointer[parsedMeta] by source id; see readMeta
	blocks sync.Map     // weak.Pointer[sharedBlock] by source id; see sharedDrafts
	closed bool

	aside []string // set by Open
}

// judged is a file that Open looked at: it uses no other one.
type judged struct {
	file   os.FileInfo
	newest uint64 // its latest transaction, if the file is lent
	lost   bool   // it has lost a write
}

// whileOpen is the time from Open to Close.
type whileOpen struct {
	ctx     context.Context // ends with Close
	end     context.CancelFunc
	closing sync.Mutex // held by Close until the file is closed
}

func newDB(path string, o Options) (*DB, error) {
	given := path
	if path != "" { // opening "" fails below
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("boltstore: open %s: %w; give an absolute path", path, err)
		}
		path = abs
	}
	db := &DB{path: path, given: given, opts: o, files: &osfile.Files{Before: o.op, Slow: o.sayWaits},
		device: newDevice(o), claims: map[string]*source{},
		relisting: make(chan struct{}, o.maxRelists)}
	db.beside = beside.Files{Files: db.files, Path: path, Log: *o.Logger, Now: o.Clock.Now, Keep: o.keepCorrupt, KeepBytes: o.keepCorruptBytes}
	db.objects.budget = o.ObjectMemory
	db.h.path, db.h.counters = path, newCounters(o.Clock)
	db.since.at, db.since.slept = o.Clock.Now(), db.device.slept()
	db.whileOpen.ctx, db.whileOpen.end = context.WithCancel(context.Background())
	if o.transactions {
		db.h.hook = func(*bolt.Tx) error { return db.files.Op("transaction", db.path) }
	}
	db.keeper.init(db)
	db.at.moved = make(chan struct{})
	return db, nil
}

// Path is the file's path as given to Open, made absolute.
func (db *DB) Path() string { return db.path }

// AsidePaths returns the paths of the files that Open has set aside.
func (db *DB) AsidePaths() []string { return slices.Clone(db.aside) }

// Err says why commits, or the writes of a relist, fail at the moment. Otherwise it says
// whether the file is no longer at its path (see [DB.AtPath]), was taken (ErrTaken) or is
// closed. nil means that all is well. Failed commits are retried until they succeed, and no
// change is lost.
//
// If it is ErrDamaged, the program has met damage in the file's structure, and nothing more
// is written. Reads go on as far as they can. The program must be started again, or close
// the DB and open the file again: Open copies what verifies into a new file.
func (db *DB) Err() error {
	db.mu.Lock()
	closed := db.closed
	db.mu.Unlock()
	if closed {
		return fmt.Errorf("boltstore: %s: %w", db.path, ErrClosed)
	}
	at := db.AtPath()
	if db.commit == nil {
		if b := db.h.now.Load(); b != nil && b.taken() {
			return fmt.Errorf("boltstore: %s: %w", db.path, ErrTaken)
		}
		return at
	}
	if damage := db.damage(); damage != nil {
		return damage
	}
	return cmp.Or(db.commit.err(), at)
}

// Size is the file's size in bytes.
func (db *DB) Size() int64 {
	st, err := os.Stat(db.path)
	if b := db.h.now.Load(); b != nil {
		st, err = b.f.Stat()
	}
	if err != nil {
		return 0
	}
	return st.Size()
}

func (db *DB) log() klog.Logger { return *db.opts.Logger }

// Logger is [Options].Logger, or what stands for it.
func (db *DB) Logger() klog.Logger { return db.log() }

// Close commits what is pending, syncs, and closes the file. It may be called before the
// informers that use the file have ended: their reads then fail, and their writes wait
// until they are stopped. The error names informers that were still running; the file is
// closed in order all the same. Close releases a claim without a producer, such as that
// of an informer that never ran. A second call waits for the first one and returns nil.
func (db *DB) Close() error {
	db.whileOpen.closing.Lock()
	defer db.whileOpen.closing.Unlock()
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		return nil
	}
	db.closed = true
	var running []string
	var idle []*source
	for _, s := range db.claims {
		switch {
		case s.metaNow() == nil: // being claimed: the claim, or its first use, meets the closed file
		case s.writer.fedBy() != nil:
			running = append(running, s.name.String())
		default:
			idle = append(idle, s)
		}
	}
	db.mu.Unlock()
	db.whileOpen.end()
	for _, s := range idle {
		s.release()
	}

	var errs []error
	if db.commit != nil {
		if err := db.commit.stop(); err != nil {
			errs = append(errs, fmt.Errorf("boltstore: close %s: the last changes could not be committed and will be fetched again: %w", db.path, err))
		} else if err := db.closeClean(); err != nil {
			errs = append(errs, fmt.Errorf("boltstore: close %s: %w", db.path, err))
		}
	}
	db.keeper.wait()
	defer func() {
		for _, s := range db.claimed() {
			s.memory.end()
		}
	}()
	if b := db.h.swap(nil); b != nil {
		if !db.opts.ReadOnly {
			errs = append(errs, osfile.SaySync(b.Sync(), db.path))
		}
		errs = append(errs, b.Close())
	}
	for _, s := range db.claimed() {
		s.shutDown()
	}
	db.tellClosed()
	if len(running) > 0 {
		slices.Sort(running)
		errs = append(errs, fmt.Errorf("boltstore: closed %s while it was in use by %s; stop the informers first", db.path, strings.Join(running, ", ")))
	}
	return errors.Join(errs...)
}

// closeClean marks the file as clean, once everything is on the disk. Nothing is written
// after it.
func (db *DB) closeClean() error {
	if err := db.h.sync(); err != nil {
		return err
	}
	return db.converting().durably(func(tx *bolt.Tx) error { return db.replacing().putHeader(tx, true) }, func() { db.h.clean = true })
}

func (db *DB) claimed() (all []*source) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for _, s := range db.claims {
		all = append(all, s)
	}
	return all
}

// claimOf is this process's claim of the source with that ID, nil if there is none.
func (db *DB) claimOf(id string) *source {
	db.mu.Lock()
	defer db.mu.Unlock()
	return db.claims[id]
}

// release ends a claim.
func (db *DB) release(s *source) {
	db.mu.Lock()
	claimed := db.claims[s.id] == s
	if claimed {
		delete(db.claims, s.id)
		db.inUse.Store(int64(len(db.claims)))
	}
	db.mu.Unlock()
	if claimed {
		db.tellCommitted(s.id)
	}
}
