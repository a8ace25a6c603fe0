package boltstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// Compaction is the result of a compaction.
type Compaction struct {
	Path   string        `json:"path"`
	Before int64         `json:"before"` // bytes
	After  int64         `json:"after"`
	Took   time.Duration `json:"took"` // ns; writers waited that long
	// Collected are the sources that were removed first.
	Collected []Collected `json:"collected,omitempty"`
}

// Compact rewrites the file at path without its unused pages. No process may have it
// open. The file is replaced in one step. After an error or a crash the old or the new
// file is there. Both have the same content, except for what was collected.
//
// If o.CollectAfter is above zero, Compact first removes sources that nobody has
// claimed for that long.
//
// Commits are synced, whatever o.Durability says. Compact creates no file and sets none
// aside. If the file is damaged, or was in use without syncs when its machine went
// down, Compact returns an error; Open repairs such a file.
//
// Unless progress is nil, Compact calls it from one goroutine, with the bytes of keys and
// values copied so far and about how many there are.
func Compact(ctx context.Context, path string, o Options, progress func(done, total int64)) (Compaction, error) {
	collectAfter := o.CollectAfter
	db, err := newDB(path, offline(o))
	if err != nil {
		return Compaction{}, err
	}
	if err := db.converting().readKeyset(); err != nil {
		return Compaction{}, err
	}
	if err := db.opening().checkPath(); err != nil {
		return Compaction{}, db.opening().explain(err)
	}
	b, err := db.opening().tryOpen()
	if errors.Is(err, fs.ErrNotExist) && osfile.IsEmpty(path) {
		err = errEmpty
	}
	if err != nil {
		return Compaction{}, db.opening().explain(err)
	}
	db.h.swap(b)
	db.beside.RemoveLeftovers()
	before := db.Size()
	var collected []Collected
	if collectAfter > 0 {
		collected, err = db.collecting().collect(ctx, collectAfter)
	}
	var c Compaction
	if err == nil {
		c, err = db.Compact(ctx, progress)
		c.Before = before
	}
	c.Path, c.Collected = path, collected
	return c, errors.Join(err, db.Close())
}

// offline returns the options for a file that nobody uses. Its header says that
// everything is on the disk, and that must stay true.
func offline(o Options) Options {
	o = o.withDefaults()
	o.ReadOnly, o.Durability = false, DurabilityFull
	return o
}

// Compact rewrites the file without its unused pages and goes on with the new file. Until
// it is done, changes are accepted but not committed. Reads go on, except at the moment
// of the swap. An error leaves everything as it was, unless it says otherwise.
//
// progress is as for the function Compact. It must return soon: changes wait.
func (db *DB) Compact(ctx context.Context, progress func(done, total int64)) (Compaction, error) {
	c := Compaction{Path: db.path, Before: db.Size()}
	start := db.opts.Clock.Now()
	err := db.compact(ctx, progress)
	c.Took, c.After = db.opts.Clock.Since(start), db.Size()
	if err != nil {
		return c, fmt.Errorf("boltstore: compact %s: %w", db.given, err)
	}
	return c, nil
}

func (db *DB) compact(ctx context.Context, progress func(done, total int64)) error {
	switch {
	case db.opts.ReadOnly:
		return errors.New("it was opened read-only")
	case runtime.GOOS == "windows":
		return fmt.Errorf("a file that is open cannot be replaced on this system: %w", errors.ErrUnsupported)
	}
	if db.judged.lost { // the copy does not show it
		if err := db.h.update(db.noteLost, nil); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(db.whileOpen.ctx, cancel)() // Close ends it

	old, err := db.compactNow(ctx, progress)
	if old != nil {
		err = errors.Join(err, old.Close()) // it waits for readers
	}
	return db.h.noted(err)
}

// compactNow returns the file that was replaced, nil if none was.
func (db *DB) compactNow(ctx context.Context, progress func(done, total int64)) (*boltFile, error) {
	db.h.writeMu.Lock() // nothing may change the file meanwhile
	defer db.h.writeMu.Unlock()
	if err := db.step("begin"); err != nil {
		return nil, err
	}
	path, err := filepath.EvalSymlinks(db.path) // a link stays a link
	if errors.Is(err, fs.ErrNotExist) {
		err = errNone
	}
	if err == nil {
		err = db.replacing().inPlace(path)
	}
	if err != nil {
		return nil, err
	}
	tmp, err := db.replacing().tempFile(path)
	if err != nil {
		return nil, err
	}
	renamed := false
	defer func() {
		if !renamed {
			_ = db.files.Remove(tmp) // if this fails, the next Open removes it
		}
	}()
	old, b, err := db.copyTo(ctx, tmp, progress)
	if err != nil {
		return nil, sayMaxSize(err, db.opts.MaxSize)
	}
	// b holds the lock of the new file from before the file gets its name until it is
	// closed. So no other process can come between.
	if err := errors.Join(ctx.Err(), db.step("rename")); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if err := db.replacing().takePlace(tmp, path, old.is); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	renamed = true
	// From here on the old file has no name.
	err = db.step("renamed")
	if err == nil {
		err = db.files.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		err = fmt.Errorf("the new file is in use, but its folder could not be synced: after a power failure the old one may be back: %w", err)
	}
	return db.h.put(b), err
}

// copyTo copies the open file to tmp and returns both. The copy is synced, open and
// locked.
func (db *DB) copyTo(ctx context.Context, tmp string, progress func(done, total int64)) (old, b *boltFile, err error) {
	if err := db.replacing().inherit(tmp); err != nil {
		return nil, nil, err
	}
	o := boltOptions(db.opts)
	o.Timeout, o.NoSync = time.Second, true // synced once, at the end
	if b, err = openBolt(tmp, o); err != nil {
		return nil, nil, err
	}
	b.AllocSize = min(64<<10, db.opts.allocSize()) // little more than the file needs
	err = db.h.view(func(tx *bolt.Tx) error {
		old = db.h.now.Load()
		if err := circles(old.f); err != nil {
			return err
		}
		c := &compactor{ctx: ctx, dst: b.DB, progress: progress, step: func(name string) error { return errors.Join(db.step(name), db.files.Op("write", tmp)) }, limit: int64(db.opts.maxCommitBytes)}
		c.total = tx.Size() - int64(old.Stats().FreePageN+old.Stats().PendingPageN)*int64(old.Info().PageSize)
		return c.copy(tx)
	})
	if err == nil {
		err = db.step("sync")
	}
	if err == nil {
		err = db.files.Sync(b.DB)
	}
	if err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	b.NoSync, b.AllocSize = old.NoSync, db.opts.allocSize()
	return old, b, nil
}

// soundPages returns the damage that was met in the pages. If a list after damage is about to
// delete the buckets that it replaces, it verifies that the pages form trees. Pages that are
// in two would be both free and in use.
func (db *DB) soundPages(verify bool) error {
	if damage := db.damage(); damage != nil || !verify {
		return damage
	}
	return db.h.alone(func(*bolt.Tx) error { return circles(db.h.now.Load().f) })
}

// circles verifies that the pages of an open file form trees, as [precheck] does. If
// damage has put a bucket into itself, copying it would never end.
func circles(f *os.File) error {
	of, err := pages.FileOf(f)
	if err == nil {
		err = of.Check(holdsData)
	}
	if errors.Is(err, ErrDamaged) {
		err = fmt.Errorf("%w: %w", errTripped, err)
	}
	return err
}

// compactFill is how full pages are made when keys come in order: when a file is
// compacted, and by a first list. The first change to a completely full page would
// split it. Keys in no order need bbolt's default.
const compactFill = 0.9

// compactor copies all buckets, in several transactions. bbolt's own Compact can
// neither be stopped nor report its progress.
type compactor struct {
	ctx         context.Context
	dst         *bolt.DB
	tx          *bolt.Tx // of dst
	txn         int      // counts them
	size, limit int64
	done, total int64
	progress    func(done, total int64)
	step        func(string) error
}

func (c *compactor) copy(src *bolt.Tx) (err error) {
	if c.tx, err = c.dst.Begin(true); err != nil {
		return err
	}
	defer func() { // also when damage makes bbolt panic
		if c.tx != nil {
			_ = c.tx.Rollback()
		}
	}()
	if err = c.bucket(src.Cursor().Bucket(), nil); err != nil {
		return err
	}
	if err = c.commit(); err != nil {
		return err
	}
	return c.tell(c.total)
}

// tell calls the caller's function. A panic there is not damage to the file.
func (c *compactor) tell(done int64) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the progress function panicked: %v", r)
		}
	}()
	if c.progress != nil {
		c.progress(done, c.total)
	}
	return nil
}

func (c *compactor) bucket(src *bolt.Bucket, path [][]byte) error {
	var b *bolt.Bucket
	at := -1
	var names []string
	for _, k := range path {
		names = append(names, string(k))
	}
	flat := holdsData(names)
	return src.ForEach(func(k, v []byte) error {
		if err := c.room(int64(len(k) + len(v))); err != nil {
			return err
		}
		if at != c.txn {
			b, at = c.open(path), c.txn
			b.FillPercent = compactFill
		}
		if v != nil {
			return b.Put(k, v)
		}
		if flat { // circles has not looked into it
			return fmt.Errorf("%w: a bucket among the data of %q", errTripped, path)
		}
		sub := src.Bucket(k)
		to, err := b.CreateBucket(k)
		if err != nil {
			return err
		}
		if err := to.SetSequence(sub.Sequence()); err != nil {
			return err
		}
		return c.bucket(sub, append(path[:len(path):len(path)], k))
	})
}

func (c *compactor) open(path [][]byte) *bolt.Bucket {
	b := c.tx.Cursor().Bucket()
	for _, k := range path {
		b = b.Bucket(k)
	}
	return b
}

// room commits what has been copied if n more bytes would exceed the limit.
func (c *compactor) room(n int64) (err error) {
	c.done += n
	if c.size += n; c.size <= c.limit {
		return nil
	}
	c.size = n
	if err := c.commit(); err != nil {
		return err
	}
	if err := c.tell(min(c.done, c.total)); err != nil {
		return err
	}
	c.tx, err = c.dst.Begin(true)
	c.txn++
	return err
}

func (c *compactor) commit() error {
	if err := errors.Join(c.ctx.Err(), c.step("copy")); err != nil {
		return err
	}
	tx := c.tx
	c.tx = nil
	return tx.Commit() // rolls back if it fails
}

// step lets tests watch or fail each step.
func (db *DB) step(name string) error {
	if db.opts.step != nil {
		return db.opts.step(name)
	}
	return nil
}
