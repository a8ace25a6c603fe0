package boltstore

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// boltFile is an open bbolt file with its identity, since its name may by now lead to
// another file.
type boltFile struct {
	*bolt.DB
	f  *os.File    // bbolt's own, which it closes
	is os.FileInfo // when it was opened
	// lent is the transaction that is read without the lock, 0 if the lock is held.
	lent int
	// last is the newest transaction that this process has read or made, 0 before the
	// file is in use.
	last atomic.Int64
	// unwritable means that bbolt panicked in a way that it cannot write after.
	unwritable atomic.Bool
}

// openBolt is bolt.Open, and notes which file it opened.
func openBolt(path string, o *bolt.Options) (*boltFile, error) {
	b := &boltFile{}
	open := o.OpenFile
	if open == nil {
		open = os.OpenFile
	}
	with := *o
	with.OpenFile = func(name string, flag int, mode os.FileMode) (_ *os.File, err error) {
		b.f, err = open(name, flag, mode)
		return b.f, err
	}
	var err error
	if b.DB, err = bolt.Open(path, 0o600, &with); err != nil {
		return nil, err
	}
	if b.is, err = b.f.Stat(); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// put changes the file beneath the handle. Nothing else does. The caller holds mu.
func (h *handle) put(b *boltFile) {
	if b != nil {
		if id, err := b.newest(); err == nil { // otherwise the next transaction meets the error
			b.last.Store(int64(id))
		}
	}
	h.db = b
	h.now.Store(b)
}

// errOverwritten means that another program has written into the open file, as cp does.
// The sources' memory does not belong to the new content.
var errOverwritten = fmt.Errorf("%w: another program has written into the file while it was open", errTripped)

// follows says whether the transaction id belongs to this process. from is what last was
// before it began.
func (b *boltFile) follows(from int64, id int) error {
	if from > 0 && (int64(id) < from || int64(id) > b.last.Load()+1) {
		return errOverwritten
	}
	return nil
}

// writable returns errTripped if bbolt's commit would go wrong for the list of free pages.
// Call it at the end of a transaction: damage may come meanwhile.
func (b *boltFile) writable() error {
	f, err := pages.FileOf(b.f)
	if err == nil {
		err = f.CheckFreelist()
	}
	if errors.Is(err, ErrDamaged) {
		err = fmt.Errorf("%w: %v", errTripped, err)
	}
	return err
}
