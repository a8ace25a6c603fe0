// Package tuning is for tests and benchmarks of other packages. They set options here
// that users of a package have no reason to choose.
package tuning

import "time"

// File is for a boltstore.Options. A zero field stays as it is.
type File struct {
	BookmarkInterval time.Duration
	MaxCommitBytes   int
	HotBytes         int64
	CompactRatio     float64
	// Op is called before each operation on files, and at the beginning of each
	// "transaction" in the file in use. Its error becomes the operation's.
	Op func(name, path string) error
	// Boot names this boot of the machine.
	Boot string
}

// SetFile sets t in options, a *boltstore.Options. Package boltstore provides it.
var SetFile func(options any, t File)

// Reflector is for a reflector.Options. A zero field stays as it is.
type Reflector struct {
	PageSize      int64
	QuietTimeout  time.Duration
	RetryUnstored time.Duration
	Metadata      bool // relists ask for metadata first, whatever the sizes
}

// SetReflector sets t in options, a *reflector.Options. Package reflector provides it.
var SetReflector func(options any, t Reflector)

// SetQueue sets how many bytes may wait in a queue, a *fifo.Queue that is not in use yet.
// Package fifo provides it.
var SetQueue func(queue any, bytes int)
