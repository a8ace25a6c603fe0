package boltstore

import (
	"os"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// checkPath refuses a path that other users can change.
func (db *DB) checkPath() error {
	if db.opts.AllowUnsafePath {
		return nil
	}
	return osfile.CheckPath(db.path, db.opts.ReadOnly)
}

// inherit gives the file name the mode and owner of db's file, whose place it will
// take.
func (db *DB) inherit(name string) error {
	st, err := db.h.now.Load().f.Stat()
	if err != nil {
		return err
	}
	return osfile.Like(name, st)
}

// tryInherit gives the file name the mode and owner of from. It only logs a failure,
// since a damaged file must be replaced all the same.
func (db *DB) tryInherit(name string, from os.FileInfo) {
	if err := osfile.Like(name, from); err != nil {
		db.log().Error(err, "The mode and owner of a damaged file could not be given to its replacement or copy", "file", name)
	}
}
