package boltstore

import (
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// precheck verifies a file's pages before bbolt maps them. lost says that the file has
// lost a write.
func precheck(path string) (lost bool, err error) { return pages.Check(path, holdsData) }

// precheckLate is precheck for a file that is only read. late has the pages that are
// verified when they are read.
func precheckLate(path string) (late *pages.Late, err error) {
	return pages.CheckLate(path, holdsData)
}

// holdsData says whether the bucket at path holds only values: items, index entries, or
// a block of the journal.
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
