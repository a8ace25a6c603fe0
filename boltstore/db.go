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
type DB struct {
	path   string // absolute, so that it leads to the file wherever the program goes
	given  string // as given to Open, for errors
	opts   Options
	files  *osfile.Files // operations on files, which tests can observe
	beside beside.Files
	device *device
	h      handle
	commit *committer
	master *seal.Master // nil without a keyset

	warned warnings
	at     pathWatch
	judged judged // the file that Open looked at last

	relisting chan struct{} // one element for each relist under way, at most maxRelists

	objects objectMemory

	keeper    keeper
	whileOpen whileOpen
	fell      fallbacks

	commits commits

	claims claims
	parsed parsed
}

// warnings are logged once.
type warnings struct {
	db                                                    *DB
	plainSecrets, unversioned, newerServer, fullOfHistory sync.Once
}

// claims are this process's claims of the file's sources.
type claims struct {
	// claiming is held for reading while a claim begins, and for writing while a source
	// is removed. It is taken before all other locks.
	claiming sync.RWMutex

	mu     sync.Mutex
	of     map[string]*source // by id
	count  atomic.Int64       // len(of)
	closed bool
}

// parsed is what was parsed last, while readers use it.
type parsed struct {
	metas  sync.Map // weak.Pointer[parsedMeta] by source id; see parsed.meta
	blocks sync.Map // weak.Pointer[sharedBlock] by source id; see parsed.drafts
}

// judged is a file that Open looked at: it uses no other one.
type judged struct {
	file   os.FileInfo
	newest uint64   // its latest transaction, if the file is lent
	lost   bool     // it has lost a write
	aside  []string // what Open has set aside
}

// whileOpen is the time from Open to Close.
type whileOpen struct {
	ctx     context.Context // ends with Close
	end     context.CancelFunc
	closing sync.Mutex // held by Close until the file is closed
	since   struct {   // when Open was called
		at    time.Time
		slept time.Duration // how long the machine had slept by then
	}
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
		device: newDevice(o), claims: claims{of: map[string]*source{}},
		relisting: make(chan struct{}, o.maxRelists)}
	db.beside = beside.Files{Files: db.files, Path: path, Log: *o.Logger, Now: o.Clock.Now, Keep: o.keepCorrupt,
		KeepBytes: o.keepCorruptBytes}
	db.warned.db, db.objects.budget = db, o.ObjectMemory
	db.h.path, db.h.counters = path, newCounters(o.Clock)
	db.whileOpen.since.at, db.whileOpen.since.slept = o.Clock.Now(), db.device.slept()
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
func (db *DB) AsidePaths() []string { return slices.Clone(db.judged.aside) }

// Err says why commits, or the writes of a relist, fail at the moment. Otherwise it says
// whether the file is no longer at its path (see [DB.AtPath]), was taken (ErrTaken) or is
// closed. nil means that all is well. Failed commits are retried until they succeed, and no
// change is lost.
//
// If it is ErrDamaged, the program has met damage in the file's structure, and nothing more
// is written. Reads go on as far as they can. The program must be started again, or close
// the DB and open the file again: Open copies what verifies into a new file.
func (db *DB) Err() error {
	db.claims.mu.Lock()
	closed := db.claims.closed
	db.claims.mu.Unlock()
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
	if damage := db.h.met(); damage != nil {
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
	db.claims.mu.Lock()
	if db.claims.closed {
		db.claims.mu.Unlock()
		return nil
	}
	db.claims.closed = true
	var running []string
	var idle []*source
	for _, s := range db.claims.of {
		switch {
		case s.metaNow() == nil: // being claimed: the claim, or its first use, meets the closed file
		case s.writer.fedBy() != nil:
			running = append(running, s.name.String())
		default:
			idle = append(idle, s)
		}
	}
	db.claims.mu.Unlock()
	db.whileOpen.end()
	for _, s := range idle {
		s.release()
	}

	var errs []error
	if db.commit != nil {
		if err := db.commit.stop(); err != nil {
			errs = append(errs, fmt.Errorf("boltstore: close %s: the last changes could not be committed and will "+
				"be fetched again: %w", db.path, err))
		} else if err := db.converting().closeClean(); err != nil {
			errs = append(errs, fmt.Errorf("boltstore: close %s: %w", db.path, err))
		}
	}
	db.keeper.wait()
	defer func() {
		for _, s := range db.claims.all() {
			s.memory.end()
		}
	}()
	if b := db.h.swap(nil); b != nil {
		if !db.opts.ReadOnly {
			errs = append(errs, osfile.SaySync(b.Sync(), db.path))
		}
		errs = append(errs, b.Close())
	}
	for _, s := range db.claims.all() {
		s.shutDown()
	}
	db.commits.end()
	if len(running) > 0 {
		slices.Sort(running)
		errs = append(errs, fmt.Errorf("boltstore: closed %s while it was in use by %s; stop the informers first",
			db.path, strings.Join(running, ", ")))
	}
	return errors.Join(errs...)
}

// closeClean marks the file as clean, once everything is on the disk. Nothing is written
// after it.
func (db converting) closeClean() error {
	if err := db.h.sync(); err != nil {
		return err
	}
	return db.durably(func(tx *bolt.Tx) error {
		return db.replacing().putHeader(tx, true)
	}, func() { db.h.clean = true })
}

func (cl *claims) all() (all []*source) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	for _, s := range cl.of {
		all = append(all, s)
	}
	return all
}

// find returns this process's claim of the source with that ID, nil if there is none.
func (cl *claims) find(id string) *source {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.of[id]
}

// remove ends a claim.
func (cl *claims) remove(s *source) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.of[s.id] == s {
		delete(cl.of, s.id)
		cl.count.Store(int64(len(cl.of)))
	}
}
