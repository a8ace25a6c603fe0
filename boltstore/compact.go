package boltstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
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
// it is done, changes are accepted but not committed. Reads go on: those under way end in
// the old file, and Compact waits for them.
//
// progress is as for the function Compact. It must return soon: changes wait.
func (db *DB) Compact(ctx context.Context, progress func(done, total int64)) (Compaction, error) {
	c := Compaction{Path: db.path, Before: db.Size()}
	start := db.opts.Clock.Now()
	err := db.replacing().compact(ctx, progress)
	c.Took, c.After = db.opts.Clock.Since(start), db.Size()
	if err != nil {
		return c, fmt.Errorf("boltstore: compact %s: %w", db.given, err)
	}
	return c, nil
}

func (db replacing) compact(ctx context.Context, progress func(done, total int64)) error {
	switch {
	case db.opts.ReadOnly:
		return errors.New("it was opened read-only")
	case runtime.GOOS == "windows":
		return fmt.Errorf("a file that is open cannot be replaced on this system: %w", errors.ErrUnsupported)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(db.whileOpen.ctx, cancel)() // Close ends it
	was, err := db.compactNow(ctx, progress)
	if was != nil {
		err = errors.Join(err, was.Close()) // it waits for readers
	}
	return db.h.noted(err)
}

// compactNow returns the file that was replaced, nil if none was.
func (db replacing) compactNow(ctx context.Context, progress func(done, total int64)) (*boltFile, error) {
	db.h.writeMu.Lock() // nothing may change the file meanwhile
	defer db.h.writeMu.Unlock()
	if damage := db.h.met(); damage != nil {
		return nil, damage
	}
	free, size, err := db.h.usage()
	if err != nil {
		return nil, err
	}
	if err := circles(db.h.now.Load().f); err != nil {
		return nil, err
	}
	cp := newCopying(db.DB, db.h.now.Load().f, seals{db.h.seal, db.h.seal})
	cp.whole = true
	begin := func(step string) error {
		return errors.Join(db.opts.step(step), ctx.Err(), tell(progress, min(cp.done, size-free), size-free))
	}
	was, err := db.rewrite(cp, header{Keys: db.h.keys, Rotate: db.h.rotate}, begin)
	switch {
	case err == nil:
		err = tell(progress, size-free, size-free)
	case errors.Is(err, ErrDamaged): // of the pages: nothing else is verified
		err = fmt.Errorf("%w: %w", errTripped, err)
	}
	return was, sayMaxSize(err, db.opts.MaxSize)
}

// tell calls the caller's function. A panic there is not damage to the file.
func tell(progress func(done, total int64), done, total int64) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the progress function panicked: %v", r)
		}
	}()
	if progress != nil {
		progress(done, total)
	}
	return nil
}

// sound returns the damage that was met in the pages. With verify, as before a list
// that follows damage, it verifies that the pages form trees. Pages that are
// in two would be both free and in use.
func (h *handle) sound(verify bool) error {
	if damage := h.met(); damage != nil || !verify {
		return damage
	}
	return h.alone(func(*bolt.Tx) error { return circles(h.now.Load().f) })
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
