package boltstore

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"

	"github.com/kubewake/kubewake/boltstore/internal/pages"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/seal"
)

// goOn marks a point at which a conversion can be given up: the file is to be
// closed, or a test lets the process die or the disk fail.
func (db *DB) goOn(step string) error {
	if db.ctx.Err() != nil {
		return ErrClosed
	}
	return db.step(step)
}

// rekey puts a copy in the file's place that has new data keys, or none: as the
// options want it. It lets relists end first, for an hour at most. Writes wait
// meanwhile, reads go on. A crash leaves the old file or the new one. After an
// error the old one is still in use.
func (db *DB) rekey() error {
	to, keys, err := db.newKeys()
	if err != nil {
		return err
	}
	disturbed, err := db.relists.hold(db.ctx, db.opts.Clock)
	if err != nil {
		return err
	}
	defer db.relists.letGo()
	if disturbed > 0 {
		db.log().Info("New data keys do not wait any longer for relists, which begin anew", "file", db.path, "relists", disturbed, "waited", relistPatience)
	}
	h := &db.h
	h.long.Lock()
	defer h.long.Unlock()
	h.writeMu.Lock()
	defer h.writeMu.Unlock()
	if err := db.goOn("make"); err != nil {
		return err
	}
	b, old, err := db.rewrite(to, keys)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.db == nil {
		return errors.Join(ErrClosed, b.Close())
	}
	if err := old.Close(); err != nil {
		db.log().Error(err, "The file before the conversion was not closed in order", "file", db.path)
	}
	h.past = append(h.past, h.seal)
	h.put(b)
	h.seal, h.keys, h.rotate = to, keys, false
	db.replaced.Add(1)
	if db.commit != nil {
		db.commit.marked = false
	}
	if err := db.reload(b); err != nil {
		return fmt.Errorf("after the conversion: %w", err)
	}
	return db.step("done")
}

// rewrite copies the file and renames the copy over it. A file of which something
// could not be converted is set aside. The caller keeps writers away.
func (db *DB) rewrite(to *seal.Sealer, keys *seal.Envelope) (b, old *boltFile, err error) {
	h := &db.h
	h.mu.RLock() // the file is not closed meanwhile
	defer h.mu.RUnlock()
	if old = h.db; old == nil {
		return nil, nil, ErrClosed
	}
	path := db.realPath()
	if err := db.inPlace(path); err != nil {
		return nil, nil, err
	}
	var res salvaged
	known := db.claimedMetas()
	name, err := db.makeFile(path, header{Keys: keys}, func(b *bolt.DB) error {
		if err := db.inherit(b.Path()); err != nil {
			return err
		}
		// What is committed is in the file, and nobody writes.
		cp := newCopying(old.f, b, seals{h.seal, to})
		cp.step = func(name string) error { return errors.Join(db.goOn(name), db.files.Op("write", b.Path())) }
		cp.all(known)
		res = cp.res
		return errors.Join(res.stopped, db.goOn("sync"))
	})
	if err != nil {
		return nil, nil, err
	}
	aside := ""
	if !res.whole() {
		aside, err = db.copyAside(old.f)
	}
	if err == nil {
		err = db.goOn("rename")
	}
	if err != nil {
		err = errors.Join(err, db.files.Remove(name))
	} else {
		b, err = db.install(name, path, old.is)
	}
	switch {
	case aside == "":
	case err != nil:
		err = errors.Join(err, db.files.Remove(aside))
	default:
		db.noteAside(aside, fmt.Errorf("%w: found while the file was converted", ErrDamaged), res)
	}
	return b, old, err
}

// all copies the sources, of which those that are known are believed (see
// salvage), and what was set aside of other clusters.
func (cp *copying) all(known map[string]*sourceMeta) {
	cp.sources(cp.from.Top(), [][]byte{layout.BucketSources}, known)
	var times [][]byte
	damage := &cp.res.damage
	damage.Add(cp.from.Each(cp.from.Top(), func(k, _ []byte, sub *pages.Bucket) {
		if sub != nil && bytes.Equal(k, layout.BucketAside) {
			damage.Add(cp.from.Each(*sub, func(k, _ []byte, _ *pages.Bucket) { times = append(times, k) }))
		}
	}))
	for _, at := range times {
		if bytes.Equal(at, layout.U64(uint64(discarded.UnixNano()))) {
			continue // to be removed, and part of it may be
		}
		cp.sources(cp.from.Top(), [][]byte{layout.BucketAside, at}, nil)
	}
}
