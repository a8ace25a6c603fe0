package boltstore

import (
	"errors"
	"os"
	"time"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// Reasons that [Aside] gives.
const (
	AsideDamaged = "damaged"           // the new file has what could be saved
	AsideForeign = "another program's" // nothing was saved
	AsideFormat  = "another format"    // a newer kubewake wrote it; nothing was saved
)

// Aside is a file that could not be used and was set aside.
type Aside struct {
	Path   string    `json:"path"`
	Bytes  int64     `json:"bytes"`
	Time   time.Time `json:"time"` // last written
	Reason string    `json:"reason"`
}

// Aside returns the files that this process or an earlier one has set aside and that
// are still there, the newest first.
func (db *DB) Aside() (all []Aside) {
	for _, name := range db.beside.Aside() {
		if st, err := os.Lstat(name); err == nil {
			all = append(all, Aside{name, st.Size(), st.ModTime(), asideReason(name)})
		}
	}
	return all
}

// asideReason judges by the file's header and top buckets only.
func asideReason(path string) string {
	h, ok := headerOf(path)
	if ok && h.Format > formatVersion {
		return AsideFormat
	}
	f, done, err := pages.Open(path)
	if err != nil {
		if errors.Is(err, ErrForeign) {
			return AsideForeign
		}
		return AsideDamaged
	}
	defer done()
	ours := ok
	err = f.Each(f.Top(), func(k, _ []byte, _ *pages.Bucket) { ours = ours || string(k) == string(layout.BucketFile) })
	if err == nil && !ours {
		return AsideForeign
	}
	return AsideDamaged
}
