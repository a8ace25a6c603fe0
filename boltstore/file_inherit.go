package boltstore

import (
	"os"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// checkPath refuses a path that is not safe from other users.
func (db *DB) checkPath() error {
	if db.opts.AllowUnsafePath {
		return nil
	}
	return osfile.CheckPath(db.path, db.opts.ReadOnly)
}

// inherit gives a file that is to take the place of db's the mode and owner of
// that.
func (db *DB) inherit(name string) error {
	st, err := db.h.now.Load().f.Stat()
	if err != nil {
		return err
	}
	return osfile.Like(name, st)
}

// tryInherit does that, of the file from, where a file that is damaged has to
// be replaced, whoever can.
func (db *DB) tryInherit(name string, from os.FileInfo) {
	if err := osfile.Like(name, from); err != nil {
		db.log().Error(err, "A file that replaces a damaged one, or is a copy of it, does not have its mode and owner", "file", name)
	}
}
