package boltstore

import (
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/boltstore/seal"
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
	return fmt.Errorf("the file must be replaced by one with everything that can be saved, but that could not be written beside it; make it possible first (is the disk full?): %w", s.stopped)
}

// seals are the sealers of the file that is copied and of the one that is written.
type seals struct{ from, to *seal.Sealer }

// salvage copies everything that verifies in the file at path into a new one: records
// with their index entries, journal blocks, meta. A source that is whole stays as it was.
// Any other source is marked degraded: its objects are served, and compared with the
// server's at the next contact.
//
// damaged says that something is lost, even if all that is there verifies. known has
// metas that are trusted instead of the file's. If stopped is set in the result, the new
// file is not complete.
func (db healing) salvage(damaged bool, path string, is os.FileInfo, to *bolt.DB, with seals, known map[string]*sourceMeta) salvaged {
	f, err := os.Open(path)
	if err != nil {
		return salvaged{stopped: err}
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil || is != nil && !os.SameFile(st, is) {
		return salvaged{stopped: errors.Join(errReplaced, err)}
	}
	cp := newCopying(f, to, with)
	cp.damaged = damaged
	cp.step = func(string) error { return db.files.Op("write", to.Path()) }
	cp.all(known)
	return cp.res
}

// copying copies a file's sources into another file.
type copying struct {
	from *pages.File
	to   *bolt.DB
	with seals
	step func(name string) error // before each transaction
	res  salvaged

	damaged bool // something is lost, even if all that is there verifies
}

func newCopying(f *os.File, to *bolt.DB, with seals) *copying {
	cp := &copying{to: to, with: with}
	from, err := pages.FileOf(f)
	if err != nil {
		cp.res.damage.Add(err)
		from = pages.Empty()
	}
	cp.from = from
	return cp
}

// sources copies the sources in the last bucket of path, which begins in the bucket in.
func (cp *copying) sources(in pages.Bucket, path [][]byte, known map[string]*sourceMeta) {
	sources := in
	for _, name := range path {
		var err error
		sources, err = cp.from.Find(sources, name)
		cp.res.damage.Add(err)
	}
	refs := map[string]pages.Bucket{}
	cp.res.damage.Add(cp.from.Each(sources, func(k, _ []byte, sub *pages.Bucket) {
		if sub == nil {
			cp.res.damage.Add(fmt.Errorf("%w: source %x is no bucket", ErrDamaged, k))
			return
		}
		refs[string(k)] = *sub
	}))
	for id := range known {
		if _, ok := refs[id]; !ok {
			refs[id] = pages.Bucket{} // only its meta is known
		}
	}
	for id, ref := range refs {
		c := &copier{copying: cp, path: path, id: id}
		cp.res.damage.AddOf(fmt.Sprintf("source %q", id), c.copy(ref, known[id]))
		if c.m != nil {
			cp.res.objects, cp.res.of = cp.res.objects+c.m.Items.Count, cp.res.of+c.was.Items.Count
		}
	}
}

// lostBefore says whether the file is known to have lost sources before.
func (cp *copying) lostBefore() bool {
	h, ok := headerIn(cp.from)
	return h.NamesLost || !ok
}

// noteSourcesLost sets NamesLost in the file's header.
func noteSourcesLost(tx *bolt.Tx) error {
	return updateHeader(tx, func(h *header) { h.NamesLost = true })
}

// noteLost notes a lost write that Open found.
func (db *DB) noteLost(tx *bolt.Tx) error {
	if !db.judged.lost {
		return nil
	}
	return noteSourcesLost(tx)
}

// compare returns ErrDamaged if the copy lacks something that meta counts.
func (c *copier) compare() error {
	if c.m.Items != c.was.Items || c.m.Bytes != c.was.Bytes {
		return fmt.Errorf("%w: the records are not those last committed", ErrDamaged)
	}
	for name, im := range c.was.Indices {
		if c.m.Indices[name].Digest != im.Digest {
			return fmt.Errorf("%w: index %s is not the one last committed", ErrDamaged, name)
		}
	}
	return nil
}
