package boltstore

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/osfile"
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

	readers sync.WaitGroup // of the handle's reads
	begins  sync.Mutex     // held while a transaction begins
	// stuck: bbolt panicked while a transaction began or ended, as in a file that was
	// truncated. It keeps its locks then, and whoever enters it waits for ever.
	stuck  atomic.Bool
	sticks chan struct{} // closed then
}

// openBolt is bolt.Open, and notes which file it opened.
func openBolt(path string, o *bolt.Options) (*boltFile, error) {
	b := &boltFile{sticks: make(chan struct{})}
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

// read runs fn in a read transaction. It is bbolt's View, but does not enter a bbolt that is
// stuck.
func (b *boltFile) read(fn func(*bolt.Tx) error) error {
	tx, err := b.begin()
	if err != nil {
		return err
	}
	defer func() {
		if !b.stuck.Load() {
			_ = tx.Rollback()
		}
	}()
	return fn(tx)
}

func (b *boltFile) begin() (tx *bolt.Tx, err error) {
	b.begins.Lock()
	defer b.begins.Unlock()
	if b.stuck.Load() {
		return nil, errTripped
	}
	defer func() {
		if tx == nil && err == nil { // it panics
			b.stick()
		}
	}()
	return b.DB.Begin(false)
}

// write is bbolt's Update, but does not enter a bbolt that is stuck.
func (b *boltFile) write(fn func(*bolt.Tx) error) error {
	b.begins.Lock()
	begun := sync.OnceFunc(b.begins.Unlock)
	defer begun()
	if b.stuck.Load() {
		return errTripped
	}
	var tx *bolt.Tx
	returned := false
	defer func() {
		if !returned && (tx == nil || tx.DB() != nil) { // it panics before or after fn
			b.stick()
		}
	}()
	err := b.Update(func(t *bolt.Tx) error { tx = t; begun(); return fn(t) })
	returned = true
	return err
}

func (b *boltFile) stick() {
	if b.stuck.CompareAndSwap(false, true) {
		close(b.sticks)
	}
}

// Close waits for readers. If bbolt would wait for ever, Close leaves the file mapped until
// the process ends, and the map would keep the lock.
func (b *boltFile) Close() error {
	read := make(chan struct{})
	go func() { b.readers.Wait(); close(read) }()
	select {
	case <-read:
	case <-b.sticks: // perhaps by a reader that began before, while others wait for its locks
	}
	if b.stuck.Load() {
		return errors.Join(osfile.Unlock(b.f), b.f.Close())
	}
	return b.DB.Close()
}

// sees says whether readers see the write transaction with that id.
func (b *boltFile) sees(id int) (yes bool) {
	_ = faults.Contain(func() error {
		return b.View(func(tx *bolt.Tx) error { yes = tx.ID() == id; return nil })
	})
	return yes
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
