package boltstore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// Snapshot is a copy of the file as one commit left it, and a kubewake file itself. Close
// removes the copy.
type Snapshot struct {
	f    *os.File // the copy; nil if there is none
	r    io.Reader
	size int64
	gone bool // the copy has no name any more
}

// Snapshot copies the file to a temporary one in the same folder (mode 0600). Read the
// result from its start. While the copy is made, readers and writers go on, but pages
// that they free are not reused. A compaction ends after it.
//
// A file that is open for reading only is not copied. The DB must then stay open until
// the Snapshot is closed.
func (db *DB) Snapshot() (*Snapshot, error) {
	if db.opts.ReadOnly {
		return db.h.asSnapshot()
	}
	f, err := os.CreateTemp(filepath.Dir(db.path), "."+filepath.Base(db.path)+".snapshot-*")
	if err != nil {
		return nil, fmt.Errorf("boltstore: snapshot of %s: %w", db.path, err)
	}
	// Without a name the copy is gone when the process ends, however that happens.
	s := &Snapshot{f: f, r: f, gone: os.Remove(f.Name()) == nil}
	err = db.h.view(func(tx *bolt.Tx) (err error) {
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

// asSnapshot returns the file itself as a Snapshot. It needs no room in the folder.
func (h *handle) asSnapshot() (*Snapshot, error) {
	s := &Snapshot{}
	err := h.view(func(tx *bolt.Tx) error {
		if err := h.late.Rest(); err != nil {
			return err
		}
		s.size = tx.Size()
		b := h.now.Load()
		s.r = lentReader{io.NewSectionReader(b.f, 0, s.size), b} // not by path, which may lead elsewhere
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("boltstore: snapshot of %s: %w", h.path, err)
	}
	return s, nil
}

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
