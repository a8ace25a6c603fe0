package boltstore

import (
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/osfile"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// salvaged says how much of a damaged file could be saved.
type salvaged struct {
	objects, of uint64
	damage      faults.List
	stopped     error // why the new file could not be written; it is then useless
}

func (s salvaged) whole() bool { return s.damage.Len() == 0 }

// unwritten says why the new file cannot take the old one's place, nil if it can.
func (s salvaged) unwritten() error {
	if s.stopped == nil {
		return nil
	}
	return fmt.Errorf("the file must be replaced by one with everything that can be saved, but that could not be "+
		"written beside it; make it possible first (is the disk full?): %w", s.stopped)
}

// replace sets aside a file that cannot be opened. A new one, with everything that can be
// saved, takes its place.
func (db opening) replace(why error) error {
	same, next, known, err := db.converting().damagedKeys()
	if err != nil {
		return db.explain(err)
	}
	release, err := osfile.Lock(db.path)
	if err != nil {
		return db.explain(err)
	}
	defer release()
	next.NamesLost = !errors.Is(why, ErrDamaged) || !known // nothing of it is saved
	path := db.replacing().realPath()
	if !isAsJudged(path, db.judged.file) {
		return errReplaced // another file is there now
	}
	var saved salvaged
	name, err := db.replacing().makeFile(path, next, func(to *bolt.DB) error {
		if !errors.Is(why, ErrForeign) {
			db.beside.TryLike(to.Path(), db.judged.file)
		}
		if errors.Is(why, ErrDamaged) && known {
			saved = db.salvage(why, path, to, seals{same, same})
		}
		return saved.unwritten()
	})
	if err != nil {
		return db.explain(err)
	}
	if errors.Is(why, errUncleanBoot) && saved.whole() {
		if err := db.replacing().takePlaceSynced(name, path, db.judged.file); err != nil {
			return db.explain(errors.Join(err, db.files.Remove(name)))
		}
		db.log().Info("The machine was not shut down in order; the whole file is sound", "file", db.path)
		return nil
	}
	aside, err := db.beside.SetAside(path, db.judged.file)
	if err != nil {
		return db.explain(errors.Join(err, db.files.Remove(name)))
	}
	if err := db.replacing().takePlaceSynced(name, path, db.judged.file); err != nil {
		return db.explain(errors.Join(err, db.files.Remove(name), db.files.Remove(aside)))
	}
	db.replacing().noteAside(aside, why, saved)
	return nil
}

// salvage copies everything that verifies in the file at path into a new one: records
// with their index entries, journal blocks, meta. A source that is whole stays as it was.
// Any other source is marked degraded: its objects are served, and compared with the
// server's at the next contact.
//
// If stopped is set in the result, the new file is not complete.
func (db opening) salvage(why error, path string, to *bolt.DB, with seals) salvaged {
	f, err := os.Open(path)
	if err != nil {
		return salvaged{stopped: err}
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || !os.SameFile(st, db.judged.file) {
		return salvaged{stopped: errors.Join(errReplaced, err)}
	}
	cp := newCopying(db.DB, f, with)
	cp.damaged = cp.damaged || !errors.Is(why, errUncleanBoot)
	cp.restart = errors.Is(why, pages.ErrMarked)
	return cp.all(to, func(string) error { return db.files.Op("write", to.Path()) })
}

func (db replacing) noteAside(aside string, why error, saved salvaged) {
	db.judged.aside = append(db.judged.aside, aside)
	db.log().Error(why, "Set the file aside; objects that could not be saved will be read from the server", "file",
		db.path, "aside", aside,
		"saved", saved.objects, "of", max(saved.of, saved.objects), "damage", saved.damage.Err())
	db.beside.Trim(aside)
}
