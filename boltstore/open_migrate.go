package boltstore

import (
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// migration brings a file from one format to the next, in the transaction that notes the
// new format. A crash leaves the file in either format. A migration too large for a
// transaction must copy the file, as conversions do.
type migration func(tx *bolt.Tx, s *seal.Sealer) error

// migrations has the migrations by the format that they begin from. There is no older
// format yet.
var migrations = map[int]migration{}

func (db converting) migration(from int) migration {
	if m := db.opts.migrations[from]; m != nil {
		return m
	}
	return migrations[from]
}

// checkFormat returns an error if the program cannot use a file of that format.
func (db converting) checkFormat(format int) error {
	switch {
	case format > formatVersion:
		return fmt.Errorf("%w: format %d, this program knows %d", ErrNewerFormat, format, formatVersion)
	case format == formatVersion:
		return nil
	}
	for f := format; f < formatVersion; f++ {
		if db.migration(f) == nil {
			return fmt.Errorf("%w: it has the format %d, which this program does not know", ErrForeign, format)
		}
	}
	if db.opts.ReadOnly {
		return fmt.Errorf("%w %d: a program that opens it for writing brings it up to date", errOldFormat, format)
	}
	return nil
}

var errOldFormat = errors.New("the file has the older format")

// migrate brings a file of an older format to formatVersion.
func (db converting) migrate() error {
	h, err := db.header()
	if err != nil || h.Format >= formatVersion {
		return err
	}
	db.log().Info("Bringing the file to a newer format", "file", db.path, "from", h.Format, "to", formatVersion)
	return db.durably(func(tx *bolt.Tx) error {
		for ; h.Format < formatVersion; h.Format++ {
			if err := db.migration(h.Format)(tx, db.h.seal); err != nil {
				return fmt.Errorf("bring it from format %d to %d: %w", h.Format, h.Format+1, err)
			}
		}
		return format.Put(tx.Bucket(layout.BucketFile), layout.KeyHeader, h)
	}, nil)
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
