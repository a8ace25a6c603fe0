package boltstore

import (
	"fmt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// precheck verifies a file's pages before bbolt maps them. lost says that the file has
// lost a write.
func precheck(path string) (lost bool, err error) { return pages.Check(path, holdsData) }

// precheckLate is precheck for a file that is only read. late has the pages that are
// verified when they are read: nearly all of a large file.
func precheckLate(path string) (late *pages.Late, err error) {
	return pages.CheckLate(path, holdsData, holdsMuch)
}

// holdsData says whether the bucket at path holds only values: items, index entries, or
// a block of the journal.
func holdsData(path []string) bool {
	return holdsMuch(path) || up(path, 1) == string(layout.BucketJournal) && up(path, 3) == string(layout.BucketSources)
}

// holdsMuch says whether the bucket at path holds items or index entries.
func holdsMuch(path []string) bool {
	return up(path, 0) == string(layout.BucketItems) && up(path, 2) == string(layout.BucketSources) ||
		up(path, 1) == string(layout.BucketIndex) && up(path, 3) == string(layout.BucketSources)
}

// up is the name of the bucket n levels above the one at path, "" if there is none.
func up(path []string, n int) string {
	if n >= len(path) {
		return ""
	}
	return path[len(path)-1-n]
}

// ours says whether a page is of a kubewake file.
func ours(page map[string]*pages.Bucket) bool {
	for _, sub := range page {
		if sub != nil && sub.Seq == layout.Signature {
			return true
		}
	}
	return false
}

// foreign says why a sound bbolt file has no header of ours.
func foreign(path string) error {
	f, done, err := pages.Open(path)
	if err != nil {
		return err
	}
	defer done()
	if f.Once(ours) {
		return fmt.Errorf("%w: the file's header and sources are lost", ErrDamaged)
	}
	return fmt.Errorf("%w: it is another program's bbolt file", ErrForeign)
}
