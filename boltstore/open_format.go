package boltstore

import (
	"fmt"

	bolt "go.etcd.io/bbolt"
)

// checkFormat returns an error if the program cannot use a file of that format.
func checkFormat(format int) error {
	switch {
	case format > formatVersion:
		return fmt.Errorf("%w: format %d, this program knows %d", ErrNewerFormat, format, formatVersion)
	case format < formatVersion:
		return fmt.Errorf("%w: it has the format %d, which this program does not know", ErrForeign, format)
	}
	return nil
}

// durably is handle.update with a sync, even if the file is written without syncs. It
// is for changes that must not be on the disk in part.
func (db converting) durably(fn func(tx *bolt.Tx) error, visible func()) error {
	if err := db.files.Op("commit", db.path); err != nil {
		return err
	}
	var b *bolt.DB
	err := db.h.update(func(tx *bolt.Tx) error {
		b = tx.DB()
		b.NoSync = false
		return fn(tx)
	}, visible)
	if b != nil {
		db.h.writeMu.Lock()
		b.NoSync = db.opts.Durability == DurabilityProcess
		db.h.writeMu.Unlock()
	}
	return err
}
