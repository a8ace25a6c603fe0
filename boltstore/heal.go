package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// minHeal is the least time between two healings of an open file. If damage returns at
// once, something else is wrong.
const minHeal = time.Minute

// replace sets aside a file that cannot be opened. A new one, with everything that can be
// saved, takes its place.
func (db healing) replace(why error) error {
	same, next, known, err := db.damagedKeys()
	if err != nil {
		return db.opening().explain(err)
	}
	release, err := osfile.Lock(db.path)
	if err != nil {
		return db.opening().explain(err)
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
			saved = db.salvage(db.judged.lost || !errors.Is(why, errUncleanBoot), path, db.judged.file, to, seals{same, same}, nil)
		}
		return saved.unwritten()
	})
	if err != nil {
		return db.opening().explain(err)
	}
	if errors.Is(why, errUncleanBoot) && saved.whole() {
		if err := db.replacing().takePlaceSynced(name, path, db.judged.file); err != nil {
			return db.opening().explain(errors.Join(err, db.files.Remove(name)))
		}
		db.log().Info("The machine was not shut down in order; the whole file is sound", "file", db.path)
		return nil
	}
	aside, err := db.beside.SetAside(path, db.judged.file)
	if err != nil {
		return db.opening().explain(errors.Join(err, db.files.Remove(name)))
	}
	if err := db.replacing().takePlaceSynced(name, path, db.judged.file); err != nil {
		return db.opening().explain(errors.Join(err, db.files.Remove(name), db.files.Remove(aside)))
	}
	db.replacing().noteAside(aside, why, saved)
	return nil
}

// unhealed is damage that could not be healed. It stands while its file is the open one.
type unhealed struct {
	file  *boltFile
	why   error
	since time.Time
}

// damage returns the damage that stands, nil if there is none.
func (db *DB) damage() *unhealed {
	if d := db.heals.standing.Load(); d != nil && d.file == db.h.now.Load() {
		return d
	}
	return nil
}

// heal replaces the open file, if it is still the one in which damage was met, by a new
// one with everything that can be saved. Readers and writers wait until it is done.
// Sources that have lost something become degraded.
func (db healing) heal(why error, met *boltFile) {
	db.heals.mu.Lock()
	defer db.heals.mu.Unlock()
	if db.h.now.Load() != met {
		return
	}
	now, d := db.opts.Clock.Now(), db.damage()
	if d == nil {
		d = &unhealed{met, why, now}
	}
	if db.heals.last.IsZero() || now.Sub(db.heals.last) >= minHeal {
		db.heals.last = now
		if err := db.healNow(why); err != nil {
			db.log().Error(err, "The file is damaged and could not be replaced; "+
				"restart the program when there is room for another file", "file", db.path)
			d = &unhealed{met, fmt.Errorf("%w; it could not be replaced: %w", why, err), d.since}
		}
	}
	db.heals.standing.Store(d)
}

// healPages heals the open file if its pages do not form trees. A list after damage
// deletes the buckets that it replaces. Pages that are in two trees would then be both
// free and in use.
func (db healing) healPages() error {
	file := db.replaced.Load()
	err := db.h.alone(func(*bolt.Tx) error { return circles(db.h.db.f) })
	if errors.Is(err, errTripped) && db.replaced.Load() != file {
		return nil
	}
	return err
}

func (db healing) healNow(why error) error {
	db.h.long.Lock()
	defer db.h.long.Unlock()
	db.h.writeMu.Lock()
	defer db.h.writeMu.Unlock()
	db.h.mu.Lock()
	defer db.h.mu.Unlock()
	if db.h.db == nil {
		return nil
	}
	known := db.replacing().claimedMetas()
	old, path := db.h.db, db.replacing().realPath()
	if err := db.replacing().inPlace(path); err != nil {
		return err
	}
	aside, unread, err := db.beside.Copy(old.f)
	if err != nil {
		return err
	}
	if unread != nil {
		why = fmt.Errorf("%w: %w", why, unread)
	}
	var saved salvaged
	lost, perr := precheck(aside) // bbolt may have stumbled without any loss
	lost = lost || perr != nil || unread != nil || db.judged.lost || errors.Is(why, errOverwritten)
	same := seals{db.h.seal, db.h.seal}
	name, err := db.replacing().makeFile(path, header{Keys: db.h.keys, Rotate: db.h.rotate}, func(to *bolt.DB) error {
		if st, err := old.f.Stat(); err == nil {
			db.beside.TryLike(to.Path(), st)
		}
		saved = db.salvage(lost, aside, nil, to, same, known)
		return saved.unwritten()
	})
	if err != nil {
		return faults.Join(err, db.files.Remove(aside))
	}
	b, err := db.replacing().install(name, path, old.is)
	if err != nil {
		return faults.Join(err, db.files.Remove(aside))
	}
	db.h.put(b)
	db.h.notedInUse = false
	db.replaced.Add(1)
	db.givenUp.Go(func() { _ = faults.Contain(old.Close) }) // it may hang on the same damage
	db.replacing().noteAside(aside, why, saved)
	if err := db.replacing().reload(b); err != nil {
		for _, s := range db.claimed() {
			s.forget() // memory may have objects that the file has lost
		}
		return err
	}
	return nil
}

// claimedMetas returns the metas of the claimed sources, from memory.
func (db replacing) claimedMetas() map[string]*sourceMeta {
	db.mu.Lock()
	defer db.mu.Unlock()
	metas := map[string]*sourceMeta{}
	for id, s := range db.claims {
		if m := s.metaNow(); m != nil { // nil while it is being claimed
			metas[id] = m
		}
	}
	return metas
}

// install opens a file that makeFile made and moves it to path, in place of the file was.
// The file is locked first, so no other process can open it in between.
func (db replacing) install(name, path string, was os.FileInfo) (*boltFile, error) {
	b, err := openBolt(name, boltOptions(db.opts))
	if err != nil {
		return nil, faults.Join(err, db.files.Remove(name))
	}
	b.AllocSize = db.opts.allocSize()
	if db.opts.Durability == DurabilityProcess {
		err = faults.Join(
			db.files.Write(b.DB, func(tx *bolt.Tx) error { return db.putHeader(tx, false) }),
			db.files.Sync(b.DB))
	}
	if err == nil {
		err = db.takePlaceSynced(name, path, was)
	}
	if err != nil {
		return nil, faults.Join(err, b.Close(), db.files.Remove(name))
	}
	return b, nil
}

// takePlaceSynced is takePlace, and syncs the folder.
func (db replacing) takePlaceSynced(name, path string, was os.FileInfo) error {
	if err := db.takePlace(name, path, was); err != nil {
		return err
	}
	if err := db.files.SyncDir(filepath.Dir(path)); err != nil {
		db.log().Error(err, "The folder could not be synced: after a power failure the old file may be back", "file", db.path)
	}
	return nil
}

// reload updates the claimed sources' memory from the new file.
func (db replacing) reload(b *boltFile) error {
	db.mu.Lock()
	defer db.mu.Unlock()
	return b.View(func(tx *bolt.Tx) error {
		var errs []error
		for id, s := range db.claims {
			if s.metaNow() == nil {
				continue
			}
			src, ok := db.h.source(tx, id)
			if !ok {
				errs = append(errs, fmt.Errorf("%w: %s", ErrNoSource, s.source))
				continue
			}
			m, err := src.meta()
			if err != nil {
				errs = append(errs, fmt.Errorf("source %s: %w", s.source, err))
				continue
			}
			s.setMeta(m)
			s.indexing().buildMissing()
			s.stirHandlers()
			if m.Degraded != "" {
				s.damaged(fmt.Errorf("%w: %s", ErrDamaged, m.Degraded))
			}
		}
		return errors.Join(errs...)
	})
}

func (db replacing) noteAside(aside string, why error, saved salvaged) {
	db.mu.Lock()
	db.aside = append(db.aside, aside)
	db.mu.Unlock()
	db.log().Error(why, "Set the file aside; objects that could not be saved will be read from the server", "file", db.path, "aside", aside,
		"saved", saved.objects, "of", max(saved.of, saved.objects), "damage", saved.damage.Err())
	db.beside.Trim(aside)
}

// healing is the part of a DB that saves as much as possible of a damaged file.
type healing struct{ *DB }

func (db *DB) healing() healing { return healing{db} }
