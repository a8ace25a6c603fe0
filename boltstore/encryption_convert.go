package boltstore

import (
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// rekey replaces the file by a copy with a new data key, or without encryption, as the
// options ask. Only Open calls it, before any reader or writer. A crash leaves the old or
// the new file. After an error the old file is still in use, unless the new one is whole.
func (db converting) rekey() error {
	to, keys, err := db.newKeys()
	if err != nil {
		return err
	}
	if err := db.step("make"); err != nil {
		return err
	}
	b, err := db.rewrite(to, keys)
	if err != nil {
		return err
	}
	if err := db.h.swap(b).Close(); err != nil {
		db.log().Error(err, "The file before the conversion was not closed in order", "file", db.path)
	}
	db.h.seal, db.h.keys, db.h.rotate = to, keys, false
	return db.step("done")
}

// rewrite copies the file and renames the copy over it. If a part of the file cannot be
// converted, the old file is set aside.
func (db converting) rewrite(to *seal.Sealer, keys *seal.Envelope) (*boltFile, error) {
	old, path := db.h.now.Load(), db.replacing().realPath()
	if err := db.replacing().inPlace(path); err != nil {
		return nil, err
	}
	var res salvaged
	name, err := db.replacing().makeFile(path, header{Keys: keys}, func(b *bolt.DB) error {
		if err := db.replacing().inherit(b.Path()); err != nil {
			return err
		}
		cp := newCopying(old.f, b, seals{db.h.seal, to})
		cp.damaged = db.judged.lost
		cp.step = func(name string) error { return errors.Join(db.step(name), db.files.Op("write", b.Path())) }
		cp.all()
		res = cp.res
		return errors.Join(res.stopped, db.step("sync"))
	})
	if err != nil {
		return nil, err
	}
	aside := ""
	if !res.whole() {
		aside, _, err = db.beside.Copy(old.f)
	}
	if err == nil {
		err = db.step("rename")
	}
	var b *boltFile
	if err != nil {
		err = errors.Join(err, db.files.Remove(name))
	} else {
		b, err = db.replacing().install(name, path, old.is)
	}
	switch {
	case aside == "":
	case err != nil:
		err = errors.Join(err, db.files.Remove(aside))
	default:
		db.replacing().noteAside(aside, fmt.Errorf("%w: found while the file was converted", ErrDamaged), res)
	}
	return b, err
}

// all copies the sources.
func (cp *copying) all() {
	cp.sources(cp.from.Top(), [][]byte{layout.BucketSources})
	damage := &cp.res.damage
	switch {
	case cp.damaged, !cp.res.whole():
		damage.Add(cp.write(func(tx *bolt.Tx) error { return noteSourcesLost(tx) }))
	case cp.lostBefore():
		damage.Add(cp.write(noteSourcesLost))
	}
}

// converting is the part of a DB that gives the file another data key, or another format.
type converting struct{ *DB }

func (db *DB) converting() converting { return converting{db} }
