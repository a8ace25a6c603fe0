package boltstore

import (
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// precheck looks at a file before bbolt maps it.
func precheck(path string) error { return pages.Check(path, holdsData) }

// holdsData says whether a bucket holds data and no buckets: items, an index
// or a journal's block.
func holdsData(path []string) bool {
	up := func(n int) string {
		if n >= len(path) {
			return ""
		}
		return path[len(path)-1-n]
	}
	return up(0) == string(layout.BucketItems) && up(2) == string(layout.BucketGen) ||
		up(1) == string(layout.BucketIndex) && up(3) == string(layout.BucketGen) ||
		up(1) == string(layout.BucketJournal) && up(3) == string(layout.BucketSources)
}
