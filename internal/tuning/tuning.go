// Package tuning lets tests and benchmarks of other packages set what users of a
// package have no reason to choose.
package tuning

import "time"

// File is for a boltstore.Options. A zero field stays as it is.
type File struct {
	BookmarkInterval time.Duration
	MaxCommitBytes   int
	HotBytes         int64
	CompactRatio     float64
}

// SetFile sets it; options is a *boltstore.Options. Package boltstore provides it.
var SetFile func(options any, t File)
