package boltstore

import (
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// partsOfSource are the buckets of a source.
var partsOfSource = [][]byte{layout.BucketGen, layout.BucketJournal, layout.BucketHandlers, layout.BucketParked, layout.BucketDicts}

func isPart(name []byte) bool {
	return slices.ContainsFunc(partsOfSource, func(b []byte) bool { return string(b) == string(name) })
}

// checkNames returns ErrDamaged if a source, or a part of one, has a name that it cannot
// have. bbolt has no checksums, and pages.Check sees no names. What a changed name led to
// would count as never written: a source as new, and its durable handlers, too.
func checkNames(tx *bolt.Tx, s *seal.Sealer) error {
	sources := tx.Bucket(layout.BucketSources)
	if sources == nil {
		return fmt.Errorf("%w: the sources are missing", ErrDamaged)
	}
	return sources.ForEach(func(name, value []byte) error {
		id := layout.SourceID(s, name)
		if value != nil || id == "" {
			return errStray("sources", name)
		}
		src := sourceIn(sources.Bucket(name), id, s)
		if m, err := src.meta(); err == nil && m.Source.ID() != id {
			return errStray("sources", name)
		}
		return src.Root.ForEach(func(k, v []byte) error {
			if v == nil && !isPart(k) || v != nil && string(k) != string(layout.KeyMeta) {
				return errStray("source "+id, k)
			}
			return nil
		})
	})
}

func errStray(in string, name []byte) error {
	return fmt.Errorf("%w: nothing is called %q in %q", ErrDamaged, name, in)
}
