package boltstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// A file that was opened for reading with GiveWay is read without its lock.
//
// bbolt writes no page that the newest transaction can reach. So the state of transaction
// N stays whole on the disk until N+1 is committed and N+2 begins to reuse what N+1 has
// freed. Each read therefore checks before and after whether N is still the newest
// transaction. If it is, all of the read is of N. If not, the result is thrown away, even
// if it is an error or a panic.

// lends says whether the lock is held only while the file is opened.
func (db opening) lends() bool {
	if !db.opts.ReadOnly || !db.opts.GiveWay || !osfile.CanUnlock {
		return false
	}
	name := osfile.Untrusted(filepath.Dir(db.path))
	// on other file systems, another machine's writes may arrive late and in any order
	return name == "" || name == "overlay"
}

// lookLent is lookAt without the lock.
func (db opening) lookLent() error {
	release, err := db.files.WaitLock(db.path, db.opts.LockTimeout, true)
	if err != nil {
		return err
	}
	id, err := newestID(db.path)
	release() // nobody has written since it was taken
	if err != nil {
		return err
	}
	db.h.late, err = precheckLate(db.path)
	if now, ierr := newestID(db.path); ierr != nil || now != id {
		return errReplaced // look at it again
	}
	db.judged.newest = id
	return err
}

func newestID(path string) (uint64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return pages.Transaction(f)
}

// lend releases the lock of a file that was just opened and verified. Its header is
// then read without the lock.
func (db opening) lend(b *boltFile) error {
	id, err := b.newest()
	if err != nil {
		return err
	}
	if uint64(id) != db.judged.newest {
		return errReplaced
	}
	if err := osfile.Unlock(b.f); err != nil {
		return err
	}
	b.lent = id
	return nil
}

// newest is the id of the newest transaction.
func (b *boltFile) newest() (id int, err error) {
	err = trip(func() error {
		return b.read(func(tx *bolt.Tx) error { id = tx.ID(); return nil })
	})
	return id, err
}

// taken says whether another process has written to a lent file.
func (b *boltFile) taken() bool {
	if b.lent == 0 {
		return false
	}
	id, err := b.newest()
	return !errors.Is(err, ErrClosed) && (err != nil || id != b.lent)
}

// lentReader reads a lent file. It fails with ErrTaken if another process has written
// to it.
type lentReader struct {
	io.Reader
	b *boltFile
}

func (r lentReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if r.b.taken() {
		return 0, fmt.Errorf("boltstore: snapshot: %w", ErrTaken)
	}
	return n, err
}
