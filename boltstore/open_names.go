package boltstore

import (
	"errors"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// partsOfSource are the buckets of a source.
var partsOfSource = [][]byte{
	layout.BucketItems, layout.BucketIndex, layout.BucketNotes, layout.BucketJournal, layout.BucketPending,
}

func isPart(name []byte) bool {
	return slices.ContainsFunc(partsOfSource, func(b []byte) bool { return string(b) == string(name) })
}

// checkedNames are the names of sources that were found right. A first claim
// verifies only names that are new since the last one. Otherwise the first claims of a
// thousand sources would read half a million descriptions.
type checkedNames struct {
	right map[string]bool
	// unread says that the description of a source cannot be read, or that it is of objects
	// that are missing. A page may be in the wrong place, or be an older one, and then other
	// sources may be lost.
	unread bool
	count  int // how many were verified, for tests
}

// check returns ErrDamaged if a source, or a part of one, has a name that it cannot have.
// bbolt has no checksums, and pages.Check sees no names. The source behind a changed name
// would count as never written.
func (c *checkedNames) check(tx *bolt.Tx, s *seal.Sealer) error {
	sources := tx.Bucket(layout.BucketSources)
	if sources == nil {
		return fmt.Errorf("%w: the sources are missing", ErrDamaged)
	}
	right := map[string]bool{} // without those that are gone
	err := sources.ForEach(func(name, value []byte) error {
		if value != nil {
			return errStray("sources", name)
		}
		if c.right[string(name)] {
			right[string(name)] = true
			return nil
		}
		c.count++
		unread, err := checkName(sources.Bucket(name), name, s)
		if err == nil && !unread {
			right[string(name)] = true
		}
		c.unread = c.unread || unread
		return err
	})
	if err == nil {
		c.right = right
	}
	return err
}

// checkName is check for the source with that bucket.
func checkName(b *bolt.Bucket, name []byte, s *seal.Sealer) (unread bool, err error) {
	id := string(name)
	src := sourceIn(b, id, s)
	switch m, err := src.meta(); {
	case errors.Is(err, errMisnamed):
		return false, errStray("sources", name)
	case err != nil:
		unread = true
	default:
		_, err := src.served(m)
		unread = err != nil
	}
	return unread, src.Root.ForEach(func(k, v []byte) error {
		if v == nil && !isPart(k) || v != nil && string(k) != string(layout.KeyMeta) {
			return errStray("source "+id, k)
		}
		return nil
	})
}

// sourcesListed verifies the pages on disk that list the sources, and the sources' names.
// A source that these pages no longer show must not count as new. The caller holds
// writeMu.
func (h *handle) sourcesListed(tx *bolt.Tx) error {
	sources, f, err := h.sourcesOnDisk()
	flat := false
	if err == nil {
		err = f.Each(sources, func(_, _ []byte, sub *pages.Bucket) { flat = flat || sub == nil })
	}
	if err == nil && flat {
		err = ErrDamaged
	}
	if err == nil {
		err = h.checked.check(tx, h.seal)
	}
	if err != nil {
		return fmt.Errorf("%w: a source may be lost: %w", errTripped, err)
	}
	return nil
}

// sourcesOnDisk returns the bucket of the sources as it is on disk. Each file of ours has
// one.
func (h *handle) sourcesOnDisk() (sources pages.Bucket, f *pages.File, err error) {
	if f, err = pages.FileOf(h.now.Load().f); err == nil {
		sources, err = f.Find(f.Top(), layout.BucketSources)
	}
	return sources, f, err
}

func errStray(in string, name []byte) error {
	return fmt.Errorf("%w: nothing is called %q in %q", ErrDamaged, name, in)
}
