package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/osfile"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// pathWatch notes whether the open file is still at its path. It has no goroutine: the
// committer, AtPath and Err look.
type pathWatch struct {
	mu     sync.Mutex
	next   os.FileInfo   // the file that takes or has taken the open one's place
	err    error         // why the file is not at its path, or what damage was met
	moved  chan struct{} // closed while err is not nil
	looked time.Time
}

// lookEvery is the least time between the committer's looks after commits.
const lookEvery = time.Second

// AtPath says whether the file is still at its path. The error is ErrMoved if it was
// removed or renamed, or another file is there. The DB goes on with its own file, which
// no other program will find, and replaces no other file. The error is ErrDamaged if damage
// has ended all writes, see [DB.Err].
//
// AtPath and Err look when they are called. While there are claims, the DB looks every
// FlushInterval, and every second while it commits.
func (db *DB) AtPath() error {
	b := db.h.now.Load()
	if b == nil {
		return nil // closed
	}
	err, changed := db.at.look(db, b)
	switch {
	case changed && errors.Is(err, ErrMoved):
		db.log().Error(err, "The program goes on with the file that it has", "file", db.path)
	case changed && err == nil:
		db.log().Info("The file is back at its path", "file", db.path)
	}
	return err
}

func (p *pathWatch) look(db *DB, b *boltFile) (err error, changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looked = db.opts.Clock.Now()
	st, err := os.Stat(db.path)
	damage := db.h.met()
	switch {
	case damage != nil:
		err = damage
	case err == nil && (os.SameFile(st, b.is) || p.next != nil && os.SameFile(st, p.next)):
	case db.h.now.Load() != b: // the DB itself has just replaced it
		return p.err, false
	case err == nil:
		err = errOther
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		err = errNone
	default: // not known
		return p.err, false
	}
	if err != nil && damage == nil {
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

// Moved is closed once [DB.AtPath] has an error: the file is no longer at its path, or is
// damaged. To go on with the file at the path, a program ends its informers, closes the DB
// and opens the path again. Once the file is back, Moved returns another channel.
func (db *DB) Moved() <-chan struct{} {
	db.at.mu.Lock()
	defer db.at.mu.Unlock()
	return db.at.moved
}

// met is the damage in the file's pages that this program has met, nil if there is none.
func (h *handle) met() error {
	if damage := h.damage.Load(); damage != nil {
		return *damage
	}
	return nil
}

// meet marks the file as damaged, for the next Open, and tells who waits for Moved.
func (db *DB) meet(damage error) {
	if b := db.h.now.Load(); b != nil {
		damage = faults.Join(damage, pages.Mark(b.f))
	}
	db.log().Error(damage, "Nothing more is written to the file", "file", db.path)
	_ = db.AtPath()
}

// lookAtPath is AtPath, at most every lookEvery.
func (c *committer) lookAtPath(now time.Time) {
	c.db.at.mu.Lock()
	due := now.Sub(c.db.at.looked) >= lookEvery
	c.db.at.mu.Unlock()
	if due {
		_ = c.db.AtPath() // it logs a change
	}
}

var (
	errOther = fmt.Errorf("%w: another file is there; it is not touched", ErrMoved)
	errNone  = fmt.Errorf("%w: there is none", ErrMoved)
)

// checkPath refuses a path with something other than a regular file, or that other users
// can change. The mode of a device says nothing about who can change a file.
func (db opening) checkPath() error {
	return db.files.Timed("stat", db.path, func() error {
		if st, err := os.Stat(db.path); err == nil && !st.Mode().IsRegular() {
			return errNoFile
		}
		if db.opts.AllowUnsafePath {
			return nil
		}
		return osfile.CheckPath(db.path, db.opts.ReadOnly)
	})
}

// isAt verifies that the file at path is the given one. If not, the error is ErrMoved.
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

// isAsJudged says whether the file at path is the judged one, unchanged. It also compares
// size and time, since a new file may have the same inode.
func isAsJudged(path string, judged os.FileInfo) bool {
	st, err := os.Stat(path)
	return err == nil && os.SameFile(st, judged) && st.Size() == judged.Size() && st.ModTime().Equal(judged.ModTime())
}

// realPath is the file's path with links resolved, also those that lead to no file yet. So
// a link stays a link when the file is made or replaced.
func (db replacing) realPath() string {
	path := db.path
	for range 40 { // as many links as Linux follows
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return path
		}
		path = filepath.Join(dir, filepath.Base(path))
		to, err := os.Readlink(path)
		if err != nil {
			return path
		}
		if path = to; !filepath.IsAbs(to) {
			path = filepath.Join(dir, to)
		}
	}
	return db.path
}

// inPlace verifies that the open file is the one at path.
func (db replacing) inPlace(path string) error {
	b := db.h.now.Load()
	if b == nil {
		return ErrClosed
	}
	return isAt(path, b.is)
}

// takePlace moves the file called name to path, in place of the file was. path is the
// DB's, with links resolved. Any other file at path stays. If the system can exchange two
// names, so does a file that comes at the last moment. Elsewhere a moment remains between
// the look and the rename.
func (db replacing) takePlace(name, path string, was os.FileInfo) error {
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

// install opens a file that makeFile made and moves it to path, in place of the file was.
// The file is locked first, so no other process can open it in between.
func (db replacing) install(name, path string, was os.FileInfo) (*boltFile, error) {
	b, err := openBolt(name, boltOptions(db.opts))
	if err != nil {
		return nil, faults.Join(err, db.files.Remove(name))
	}
	b.AllocSize = db.opts.allocSize()
	if db.opts.Durability == DurabilityProcess {
		err = faults.Join(
			db.files.Write(b.DB, func(tx *bolt.Tx) error { return db.putHeader(tx, false) }),
			db.files.Sync(b.DB))
	}
	if err == nil {
		err = db.takePlaceSynced(name, path, was)
	}
	if err != nil {
		return nil, faults.Join(err, b.Close(), db.files.Remove(name))
	}
	return b, nil
}

// takePlaceSynced is takePlace, and syncs the folder.
func (db replacing) takePlaceSynced(name, path string, was os.FileInfo) error {
	if err := db.takePlace(name, path, was); err != nil {
		return err
	}
	if err := db.files.SyncDir(filepath.Dir(path)); err != nil {
		db.log().Error(err, "The folder could not be synced: after a power failure the old file may be back", "file",
			db.path)
	}
	return nil
}

func (db replacing) exchangeNames(name, path string, was os.FileInfo) error {
	if db.opts.plainRename || osfile.Exchange(name, path) != nil { // the system cannot exchange names
		if err := isAt(path, was); err != nil {
			return err
		}
		return osfile.SayBusy(os.Rename(name, path))
	}
	if err := isAt(name, was); err != nil {
		// Another file came to path after the look, and gets its name back. If the
		// program dies before that, RemoveLeftovers finds the file.
		xerr := db.files.Op("exchange", path)
		if xerr == nil {
			xerr = osfile.Exchange(name, path)
		}
		if xerr != nil {
			// This is not ErrMoved: Open would go on with the file that is at path now.
			kept := db.beside.AsideName()
			return fmt.Errorf("another file came to %s, could not be given its name back, and is now %s; move "+
				"it there: %w", path, kept, errors.Join(xerr, os.Rename(name, kept)))
		}
		return errOther
	}
	if err := db.files.Remove(name); err != nil {
		db.log().Error(err, "The old file was not removed; the next start does it", "file", name)
	}
	return nil
}

// inherit gives the file name the mode and owner of db's file, whose place it will take.
func (db replacing) inherit(name string) error {
	st, err := db.h.now.Load().f.Stat()
	if err != nil {
		return err
	}
	return osfile.Like(name, st)
}

// taking notes the file that is about to take the open one's place, nil if it did not.
func (p *pathWatch) taking(is os.FileInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = is
}

// replacing is the part of a DB that puts another file in the place of the open one. Its
// verbs, from the path to the handle:
//   - exchangeNames exchanges two names, so that no file at the path is lost.
//   - takePlace moves a file to the path; takePlaceSynced syncs the folder, too.
//   - install opens a new file and moves it to the path.
//   - handle.swap and put have the handle go on with it.
type replacing struct{ *DB }

func (db *DB) replacing() replacing { return replacing{db} }
