package boltstore

import (
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// A file is copied to compact it, to seal it by another key, and to save what verifies of a
// damaged one. The copier reads the file's pages without bbolt, so no damage stops it.

// seals are the sealers of the file that is copied and of the one that is written.
type seals struct{ from, to *seal.Sealer }

// copying copies a file's sources into another file.
type copying struct {
	seals
	from  *pages.File
	to    *bolt.DB
	begin func(step string) error // before each transaction
	limit int                     // bytes in a transaction
	done  int64                   // bytes of keys and values copied so far
	res   salvaged

	whole   bool // the sources are copied as they are, even what does not verify
	damaged bool // something is lost, even if all that is there verifies
	restart bool // the handlers start over: all that is there may be of an earlier commit
}

func newCopying(db *DB, f *os.File, with seals) *copying {
	cp := &copying{seals: with, limit: db.opts.maxCommitBytes, damaged: db.judged.lost}
	from, err := pages.FileOf(f)
	if err != nil {
		cp.res.damage.Add(err)
		from = pages.Empty()
	}
	cp.from = from
	from.Stop = func() bool { return cp.res.stopped != nil }
	return cp
}

// all copies everything into a new file.
func (cp *copying) all(to *bolt.DB, begin func(step string) error) salvaged {
	cp.to, cp.begin = to, begin
	sources, err := cp.from.Find(cp.from.Top(), layout.BucketSources)
	cp.res.damage.Add(err)
	seen := map[string]bool{}
	cp.res.damage.Add(cp.from.Each(sources, func(k, _ []byte, sub *pages.Bucket) {
		id := string(k)
		if seen[id] {
			cp.res.damage.Add(fmt.Errorf("%w: source %q is there twice", ErrDamaged, id))
			return
		}
		seen[id] = true
		if sub == nil {
			cp.res.damage.Add(fmt.Errorf("%w: source %x is no bucket", ErrDamaged, k))
			return
		}
		c := &copier{copying: cp, id: id}
		cp.res.damage.AddOf(fmt.Sprintf("source %q", id), c.copy(*sub))
		if c.m != nil {
			cp.res.objects, cp.res.of = cp.res.objects+c.m.Items.Count, cp.res.of+c.was.Items.Count
		}
	}))
	if h, ok := headerIn(cp.from); cp.damaged || !cp.res.whole() || !ok || h.NamesLost {
		cp.res.damage.Add(cp.write(noteSourcesLost))
	}
	return cp.res
}

// write runs a transaction in the new file. Once the new file has failed, it only
// returns that error.
func (cp *copying) write(fn func(tx *bolt.Tx) error) error {
	if cp.res.stopped == nil {
		cp.res.stopped = cp.begin("copy")
	}
	if cp.res.stopped != nil {
		return cp.res.stopped
	}
	err := cp.to.Update(fn)
	if !refused(err) {
		cp.res.stopped = err
	}
	return err
}

// rewrite puts a copy in the place of the open file, unless a part of it is damaged. next is
// the header of the copy. The caller holds writeMu, or Open is at work, so nothing changes the
// file meanwhile. rewrite returns the file that was replaced, nil if none was.
func (db replacing) rewrite(cp *copying, next header, begin func(step string) error) (*boltFile, error) {
	was, path := db.h.now.Load(), db.realPath()
	if err := faults.Join(begin("begin"), db.inPlace(path)); err != nil {
		return nil, err
	}
	name, err := db.makeFile(path, next, func(to *bolt.DB) error {
		if err := db.inherit(to.Path()); err != nil {
			return err
		}
		if cp.whole {
			to.MaxSize = db.opts.MaxSize
		}
		res := cp.all(to, func(step string) error { return errors.Join(begin(step), db.files.Op("write", to.Path())) })
		switch {
		case res.stopped != nil:
			return res.stopped
		case !res.whole():
			return res.damage.Err()
		}
		return begin("sync")
	})
	if err != nil {
		return nil, err
	}
	if err := begin("rename"); err != nil {
		return nil, faults.Join(err, db.files.Remove(name))
	}
	b, err := db.install(name, path, was.is)
	if err != nil {
		return nil, err
	}
	db.h.put(b)
	return was, begin("renamed")
}

// noteSourcesLost sets NamesLost in the file's header.
func noteSourcesLost(tx *bolt.Tx) error {
	return updateHeader(tx, func(h *header) { h.NamesLost = true })
}

// noteLost notes a lost write that Open found.
func (j *judged) noteLost(tx *bolt.Tx) error {
	if !j.lost {
		return nil
	}
	return noteSourcesLost(tx)
}
