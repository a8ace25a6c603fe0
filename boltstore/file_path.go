package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// pathWatch watches whether the file that is open is still the one at its path. It
// has no goroutine: the committer looks, and whoever asks.
type pathWatch struct {
	mu     sync.Mutex
	next   os.FileInfo   // the file that takes the open one's place, or has taken it
	err    error         // why it is not at its path, nil if it is
	moved  chan struct{} // closed while err is not nil
	looked time.Time
}

// lookEvery is how often the committer looks after commits, at most.
const lookEvery = time.Second

// AtPath says whether the file is still at its path. If it was removed or
// renamed, or another file is there, the error is ErrMoved. The DB works on with
// the file that it has, which nobody else will find; it replaces no other file.
// The DB looks itself every FlushInterval and, while it commits, every second,
// as long as there are claims. AtPath and Err look when they are called.
func (db *DB) AtPath() error {
	b := db.h.now.Load()
	if b == nil {
		return nil // closed
	}
	err, changed := db.at.look(db, b)
	switch {
	case changed && err != nil:
		db.log().Error(err, "The program goes on with the file that it has", "file", db.path)
	case changed:
		db.log().Info("The file is back at its path", "file", db.path)
	}
	return err
}

func (p *pathWatch) look(db *DB, b *boltFile) (err error, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looked = db.opts.Clock.Now()
	st, err := os.Stat(db.path)
	switch {
	case err == nil && (os.SameFile(st, b.is) || p.next != nil && os.SameFile(st, p.next)):
	case db.h.now.Load() != b: // the DB itself has replaced it, a moment ago
		return p.err, false
	case err == nil:
		err = errOther
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		err = errNone
	default: // not known
		return p.err, false
	}
	if err != nil {
		err = fmt.Errorf("boltstore: %s: %w; move the file back, or end the program and start it again", db.path, err)
	}
	changed = (err == nil) != (p.err == nil)
	if p.err = err; changed && err != nil {
		close(p.moved)
	} else if changed {
		p.moved = make(chan struct{})
	}
	return err, changed
}

// Moved is closed once the DB has noticed that the file is no longer at its
// path, see [DB.AtPath]. A program that wants to go on with what is there ends
// its informers, closes the DB and opens the path again, as after
// [OpenOrTemporary]. After the file has come back Moved is another channel.
func (db *DB) Moved() <-chan struct{} {
	db.at.mu.Lock()
	defer db.at.mu.Unlock()
	return db.at.moved
}

// lookAfterCommit is AtPath, now and then.
func (db *DB) lookAfterCommit(now time.Time) {
	db.at.mu.Lock()
	due := now.Sub(db.at.looked) >= lookEvery
	db.at.mu.Unlock()
	if due {
		_ = db.AtPath() // which notes it
	}
}

var (
	errOther = fmt.Errorf("%w: another file is there; it is not touched", ErrMoved)
	errNone  = fmt.Errorf("%w: there is none", ErrMoved)
)

// Lock takes the lock of a file, as a program has it that writes it, until
// release is called. It is for tools that replace files: one that is in use is
// ErrLocked. Where files that are open cannot be replaced it does nothing.
func Lock(path string) (release func(), err error) {
	if release, err = osfile.Lock(path); errors.Is(err, ErrLocked) {
		err = fmt.Errorf("boltstore: %s: %w%s", path, err, osfile.Holder(path))
	}
	return release, err
}

// isAt verifies that the file at path is that one.
func isAt(path string, is os.FileInfo) error {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return errNone
	case err != nil:
		return err
	case !os.SameFile(st, is):
		return errOther
	}
	return nil
}

// isAsJudged says whether the file at path is the one that was looked at, as it was
// then. Nobody held that file open since: another one may have its inode.
func isAsJudged(path string, judged os.FileInfo) bool {
	st, err := os.Stat(path)
	return err == nil && os.SameFile(st, judged) && st.Size() == judged.Size() && st.ModTime().Equal(judged.ModTime())
}

// inPlace verifies that the file that is open is the one at path.
func (db *DB) inPlace(path string) error {
	b := db.h.now.Load()
	if b == nil {
		return ErrClosed
	}
	return isAt(path, b.is)
}

// takePlace gives the file name the path, which is the DB's or what a link there
// leads to, in place of the file was. Any other file that is there stays: where
// the system can exchange two names, also one that comes at the last moment.
// Elsewhere a moment remains, between a look and the rename after it.
func (db *DB) takePlace(name, path string, was os.FileInfo) error {
	is, err := os.Stat(name)
	if err != nil {
		return err
	}
	if err := isAt(path, was); err != nil {
		return err
	}
	if err := db.files.Op("rename", path); err != nil {
		return osfile.SayBusy(err)
	}
	db.at.taking(is)
	if err := db.exchangeNames(name, path, was); err != nil {
		db.at.taking(nil)
		return err
	}
	return nil
}

func (db *DB) exchangeNames(name, path string, was os.FileInfo) error {
	if db.opts.plainRename || osfile.Exchange(name, path) != nil { // it cannot be done here
		if err := isAt(path, was); err != nil {
			return err
		}
		return osfile.SayBusy(os.Rename(name, path))
	}
	if err := isAt(name, was); err != nil {
		// A file came there after the look. It gets its name back. If the program
		// dies before that, removeLeftovers finds it.
		xerr := db.files.Op("exchange", path)
		if xerr == nil {
			xerr = osfile.Exchange(name, path)
		}
		if xerr != nil {
			kept := db.asideName()
			return errors.Join(err, fmt.Errorf("the file that came there is now %s: %w", kept, errors.Join(xerr, os.Rename(name, kept))))
		}
		return errOther
	}
	if err := db.files.Remove(name); err != nil {
		db.log().Error(err, "The old file was not removed; the next start does it", "file", name)
	}
	return nil
}

// taking notes the file that is about to take the place, nil if it did not.
func (p *pathWatch) taking(is os.FileInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = is
}
