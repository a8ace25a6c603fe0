package boltstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// Snapshot is a copy of the file as one commit left it. It is a kubewake file
// itself. Close removes it.
type Snapshot struct {
	f    *os.File // the copy; nil if there is none
	r    io.Reader
	size int64
	gone bool // it has no name any more
}

// Snapshot copies the file to a temporary one (0600, in the same folder) and
// returns that, to be read from its start. Readers and writers go on meanwhile;
// what they free is reused only after the copy is done. It waits for a
// compaction or a change of keys under way, and these wait for it. A file that
// is open for reading only, which nobody writes meanwhile, is not copied: it
// must stay open until the Snapshot is closed.
func (db *DB) Snapshot() (*Snapshot, error) {
	if db.opts.ReadOnly {
		return db.asSnapshot()
	}
	f, err := os.CreateTemp(filepath.Dir(db.path), "."+filepath.Base(db.path)+".snapshot-*")
	if err != nil {
		return nil, fmt.Errorf("boltstore: snapshot of %s: %w", db.path, err)
	}
	// Without a name it goes with the process, however that ends.
	s := &Snapshot{f: f, r: f, gone: os.Remove(f.Name()) == nil}
	err = db.h.viewLong(func(tx *bolt.Tx) (err error) {
		if err := db.files.Op("write", f.Name()); err != nil {
			return err
		}
		s.size, err = tx.WriteTo(f)
		return err
	})
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("boltstore: snapshot of %s: %w", db.path, err), s.Close())
	}
	return s, nil
}

// asSnapshot is the file itself as a Snapshot. It needs no room in its folder.
func (db *DB) asSnapshot() (*Snapshot, error) {
	s := &Snapshot{}
	err := db.h.viewLong(func(tx *bolt.Tx) error {
		s.size = tx.Size()
		s.r = lentReader{io.NewSectionReader(db.h.db.f, 0, s.size), db.h.db} // its path may lead elsewhere
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("boltstore: snapshot of %s: %w", db.path, err)
	}
	return s, nil
}

// Size is its size in bytes.
func (s *Snapshot) Size() int64 { return s.size }

// Read implements io.Reader.
func (s *Snapshot) Read(p []byte) (int, error) { return s.r.Read(p) }

// Close removes the copy.
func (s *Snapshot) Close() error {
	if s.f == nil {
		return nil
	}
	err := s.f.Close()
	if !s.gone {
		err = errors.Join(err, os.Remove(s.f.Name()))
	}
	return err
}
