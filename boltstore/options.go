package boltstore

import (
	"cmp"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/tuning"
)

// Durability says what a commit survives.
type Durability int

const (
	// DurabilityFull syncs each commit to the disk: it survives a power failure.
	DurabilityFull Durability = iota
	// DurabilityProcess does not sync: a commit survives the death of the process, not
	// that of the machine. After an unclean boot the file is verified before use.
	DurabilityProcess
)

// Options of a file. The zero value is a good default.
type Options struct {
	// Durability of a commit. Default DurabilityFull.
	Durability Durability
	// Window is how long changes to a busy file are gathered into one commit.
	// An idle file commits a change at once. How long commits take is counted in,
	// up to 10 ms and half of it, but for those of more than a MiB. Until then
	// nobody can read a change, and who waits for its version, or for freshness,
	// waits as long; the first sync, the end of an informer and a relist do not.
	// Default 20 ms; seconds spare flash.
	Window time.Duration
	// FlushInterval bounds how long told marks and acknowledgements wait for a
	// commit to ride on; while changes are gathered, a longer Window does, and
	// they ride on its commit. Beside a long Window minutes spare commits, too;
	// after a crash handlers are told again of that much more. Default 5 s, at
	// least 1 ms.
	FlushInterval time.Duration
	// JournalBytes and JournalAge bound the history kept for each source, as
	// compressed bytes and as time. What a plain handler has still to be told is
	// kept whatever they say; what a durable one has still to acknowledge is
	// collapsed, one change a key. Defaults 16 MiB and 1 h.
	JournalBytes int64
	JournalAge   time.Duration
	// HandlerAge is how long a durable handler may be unregistered before its
	// name is removed, and with it what is kept for it, up to a sixteenth or a
	// minute later, by a clock that was right then and is, see TrustClock. 0 or
	// less: for ever.
	HandlerAge time.Duration
	// MaxSize bounds the file, in bytes; a sixteenth of it, 1 MiB at most, is not
	// used. 0 or less is no bound.
	MaxSize int
	// Compression of payloads. Default CompressionNone, which reads fastest; CompressionZstd
	// spares disk and flash. It may be changed at any time: what is stored stays
	// as it is until it changes.
	Compression Compression
	// CompactRatio is the share of pages not in use above which a file of at least
	// 16 MiB is compacted while it is open (see [DB.Compact]). Negative never
	// compacts by itself. Default 0.6, more than a relist of all objects leaves
	// free; with less than 0.1 what each commit frees may have it compacted once a
	// minute. Not on Windows.
	CompactRatio float64
	// CollectAfter is how long after its last claim, which is noted to the hour, a
	// source is removed from the file, and contents of another cluster after they were set aside. It
	// happens only in a file that has been open for an hour, so that a program
	// that was off for long claims its sources first, and by a clock that was
	// right then and is, see TrustClock. Negative keeps all.
	// Default 30 days.
	CollectAfter time.Duration
	// LockTimeout is how long Open waits for another process to close the file.
	// Default 500 ms; negative does not wait.
	LockTimeout time.Duration
	// ReadOnly opens an existing file for reading: nothing is created, renamed
	// or repaired, and sources cannot be claimed for writing.
	ReadOnly bool
	// GiveWay, with ReadOnly, keeps no other process from opening the file for
	// writing, however long this one reads: its lock is held only while it is
	// opened. Once another process has written to the file, reads fail with
	// ErrTaken; all that was read before is of the state that was opened. Where
	// locks are of another kind (Windows), and on network file systems, the lock
	// is held as without.
	GiveWay bool
	// AllowUnsafePath accepts a file or folder that other users can change, and
	// a path that is a symlink, where Open fails with ErrUnsafe. Without it a
	// file of this user's that others can read gets mode 0600.
	AllowUnsafePath bool
	// ReplaceForeign renames another program's file to <path>.corrupt-<time> and
	// starts a new one, where Open otherwise fails with ErrForeign and leaves the
	// file as it is. A program that must start whatever lies at its path sets it.
	ReplaceForeign bool
	// KeepCorrupt bounds the files that were set aside as <path>.corrupt-<time>,
	// whose sizes together are bounded by 1 GiB: the oldest are removed. The newest
	// one always stays, alone if it is negative. Default 3.
	KeepCorrupt int
	// Keyset encrypts the file: names, so that they can be looked up,
	// deterministically, all else with AEAD. A plain file is converted when it
	// is opened for writing, which takes as long as copying it; a crash leaves
	// it as it was or converted. So does one whose keyset has another primary key
	// since: Open gives it new data keys, see DB.KeysDue. A keyset that is
	// malformed or not the file's is ErrKeyset, and the file stays as it is.
	// Default none: a plain file.
	Keyset *seal.Keyset
	// Decrypt turns a file that Keyset has encrypted into a plain one.
	Decrypt bool
	// Logger. Default klog.Background().
	Logger *klog.Logger
	// TrustClock says that the device's clock is right at any time, as one with a
	// battery is. Without it the clock counts as right while the system says that
	// it is synchronised (Linux), or once the time of a server on another machine
	// was the same, see [DB.ServerTime]; on other systems always. What was confirmed before the
	// last boot has an age only by a clock that was right then and is now.
	TrustClock bool
	// Clock for tests. Default the real one. One that is a DeviceClock can stand
	// for a device that reboots and sleeps.
	Clock clock.WithTicker

	// bookmarkInterval bounds how long a bookmark waits for a commit to ride on, of
	// a source to which nothing else happens. An older version costs such a source
	// nothing after a crash, unless the server has been restarted, while each
	// commit wears the disk. It is looked at each FlushInterval. An orderly end
	// writes the newest one. Default 10 min.
	bookmarkInterval time.Duration
	// maxCommitBytes bounds a transaction: more is split over several, a change or
	// a record each at least. Default 4 MiB.
	maxCommitBytes int
	// maxRelists is how many sources may read everything from their servers at
	// once. Default 8.
	maxRelists int
	// hotBytes is the budget for decoded objects kept in memory, for each source:
	// three times their encoded size and 1.5 KB each. Default 3 MiB.
	hotBytes int64
	// compactMinSize is the size below which a file is not compacted by itself.
	// Default 16 MiB.
	compactMinSize int64
	// keepCorruptBytes bounds the files that were set aside. Default 1 GiB.
	keepCorruptBytes int64

	// step, if set by a test, is called at each step of a conversion.
	step func(name string) error
	// op, if set by a test, is called before each operation on files.
	op func(name, path string) error
	// plainRename, if set by a test, is a system that exchanges no names.
	plainRename bool
	// migrations of tests.
	migrations map[int]migration
}

func (o Options) withDefaults() Options {
	o.Window = cmp.Or(o.Window, 20*time.Millisecond)
	o.FlushInterval = max(cmp.Or(o.FlushInterval, 5*time.Second), time.Millisecond)
	o.bookmarkInterval = cmp.Or(o.bookmarkInterval, 10*time.Minute)
	o.maxCommitBytes = max(cmp.Or(o.maxCommitBytes, 4<<20), 1)
	o.JournalBytes = cmp.Or(o.JournalBytes, 16<<20)
	o.JournalAge = cmp.Or(o.JournalAge, time.Hour)
	o.maxRelists = max(cmp.Or(o.maxRelists, 8), 1)
	o.hotBytes = cmp.Or(o.hotBytes, 3<<20)
	o.CompactRatio = cmp.Or(o.CompactRatio, 0.6)
	o.compactMinSize = cmp.Or(o.compactMinSize, 16<<20)
	o.CollectAfter = cmp.Or(o.CollectAfter, 30*24*time.Hour)
	o.LockTimeout = cmp.Or(o.LockTimeout, 500*time.Millisecond)
	o.KeepCorrupt = cmp.Or(o.KeepCorrupt, 3)
	o.keepCorruptBytes = cmp.Or(o.keepCorruptBytes, 1<<30)
	if o.LockTimeout < 0 {
		o.LockTimeout = time.Nanosecond
	}
	if o.Logger == nil {
		l := klog.Background()
		o.Logger = &l
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return o
}

func init() {
	tuning.SetFile = func(options any, t tuning.File) {
		o := options.(*Options)
		o.bookmarkInterval = cmp.Or(t.BookmarkInterval, o.bookmarkInterval)
		o.maxCommitBytes = cmp.Or(t.MaxCommitBytes, o.maxCommitBytes)
		o.hotBytes = cmp.Or(t.HotBytes, o.hotBytes)
	}
}
