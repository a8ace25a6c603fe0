package boltstore

import (
	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// inherit gives the file name the mode and owner of db's file, whose place it will
// take.
func (db replacing) inherit(name string) error {
	st, err := db.h.now.Load().f.Stat()
	if err != nil {
		return err
	}
	return osfile.Like(name, st)
}
