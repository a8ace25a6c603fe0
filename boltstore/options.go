package boltstore

import (
	"cmp"
	"strconv"
	"time"

	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/tuning"
)

// Durability says which failures a commit survives.
type Durability int

const (
	// DurabilityFull syncs each commit to the disk. It survives a power failure.
	DurabilityFull Durability = iota
	// DurabilityProcess does not sync. A commit survives the end of the process, but
	// not a crash of the machine. After an unclean boot the file is verified before
	// use.
	DurabilityProcess
)

// A new option's comment says who sets it (TestOptionsHaveReasons). withDefaults has its
// default, and TestAnyOptionValues a case for it.

// Options are the options of a file, and of the informers over it. The zero value is a
// good default.
type Options struct {
	// Durability: set it to DurabilityProcess if syncs are expensive and a machine that
	// crashed may read its sources again. Default DurabilityFull.
	Durability Durability
	// Window is how long changes to a busy file are gathered into one commit. Set it to
	// seconds to spare flash, or below the default if changes must be seen sooner. An
	// idle file commits a change at once. Readers see a change once it is committed. The
	// first sync, a relist, a program's write and the end of an informer do not wait
	// for the window. Default 20 ms. Negative: a change waits only for the commit before it.
	//
	// The time that a commit takes counts towards the window, up to 10 ms and half of
	// it, except after a commit of more than a MiB.
	Window time.Duration
	// FlushInterval bounds how long told marks and acknowledgements wait for another
	// commit. Set it to minutes to spare flash: there are fewer commits, and after a
	// crash handlers are told that much again. While changes are gathered, a longer
	// Window takes its place. Default 5 s, at least 1 ms.
	FlushInterval time.Duration
	// JournalBytes and JournalAge bound the journal of each source, in compressed bytes
	// and in time. Raise them to keep more history for `kubewake history` and for
	// handlers that fall behind; lower them on a small disk. Entries that plain handlers
	// have not been told are kept in any case. Durable handlers need none. Defaults 16 MiB
	// and 1 h.
	JournalBytes int64
	JournalAge   time.Duration
	// HandlerAge is how long a durable handler may be unregistered before it is removed,
	// with everything kept for it. Set it if names of durable handlers go out of use. A
	// handler may stay a sixteenth longer, or a minute. One that returns after its
	// removal is told a Reset. The clock must have been right then and now; see TrustClock. 0
	// or less keeps handlers for ever.
	HandlerAge time.Duration
	// MaxSize bounds the file, in bytes. Set it if others need room on the disk. In a full
	// file the oldest history that no handler needs gives way to objects, whatever
	// JournalBytes says. A
	// sixteenth of it, at most 1 MiB, is not used. An empty file takes that sixteenth and
	// 7 pages of the system's in any case. 0 or less means no bound. A 32-bit program's file
	// has at most 1 GiB. Encryption may bring a
	// file above the bound, by 70 % where objects are tiny: it takes no commits then.
	MaxSize int
	// Compression: set it to CompressionZstd to spare disk and flash. Default
	// CompressionNone, which reads fastest. It may be changed at any time: stored objects
	// keep their form until they change.
	Compression Compression
	// CollectAfter is how long after its last claim a source is removed from the file.
	// Set it longer if a program claims some of its sources seldom, or negative to keep
	// all.
	// The last claim is noted to the hour. Durable handlers of a removed source start
	// over when they come back. Default 30 days.
	//
	// Nothing is removed until the file has been open for an hour, so a program that was
	// off for long can claim its sources first. The clock must have been right then and
	// now; see TrustClock.
	CollectAfter time.Duration
	// ObjectMemory bounds the memory for decoded objects of all sources together, in
	// bytes. Set it larger if reads must be as fast as client-go's, and smaller or
	// negative if memory is short. Sources get memory in the order in which they are
	// loaded. A source whose objects fit is read from memory, any other from the file.
	// Default a quarter of the process's memory limit (GOMEMLIMIT, control group), 8 MiB
	// if there is none.
	ObjectMemory int64
	// LockTimeout is how long Open waits for another process to close the file. Set it
	// longer if a program starts while the one before it ends, and call Open before the
	// program catches signals, so that they end it while it waits. Default 500 ms; negative
	// does not wait.
	LockTimeout time.Duration
	// ReadOnly is for tools that look at an existing file. Nothing is created, renamed
	// or repaired, and sources cannot be claimed. Open leaves pages of objects and indices
	// unverified; each is verified before it is read, and a read that needs a damaged one
	// fails with ErrDamaged.
	ReadOnly bool
	// GiveWay, with ReadOnly, is for tools that must not keep the file's program from
	// starting. The lock is held only during Open, so other processes may open the file
	// for writing at any time. Once another process has written to the file, reads fail
	// with ErrTaken. All reads before that show the state that was opened. GiveWay has no
	// effect on Windows and on network file systems.
	GiveWay bool
	// AllowUnsafePath is for files that several users share, and paths that are symlinks.
	// Without it, Open fails with ErrUnsafe if other users can change the file or its
	// folder. A file of this user that others can read gets mode 0600.
	AllowUnsafePath bool
	// ReplaceForeign is for programs that must start whatever lies at their path. Another
	// program's file is renamed to <path>.corrupt-<time>, and a new file takes its place.
	// Without it, Open fails with ErrForeign and leaves the file as it is.
	ReplaceForeign bool
	// Keyset encrypts the file. Set it for Secrets, and for disks that others can read.
	// Values are encrypted. Object keys and index values are not, so an index function must
	// not return what is secret. A file that is not encrypted is converted when it is opened
	// for writing, which takes as long as copying it. A crash leaves the old or the converted
	// file. If the keyset's primary key has changed, Open makes a new data key; see
	// DB.KeysDue. [Decrypt] takes the encryption off.
	//
	// If the keyset is malformed or not the file's, Open returns ErrKeyset and leaves
	// the file as it is. Default none: the file is not encrypted.
	Keyset *seal.Keyset
	// Logger gets the messages of the file and of its informers. Set it if the program
	// does not log through klog. Default klog.Background().
	Logger *klog.Logger
	// TrustClock: set it on devices whose clock has a battery and so is always right.
	// Without it, on Linux the clock counts as right while the system calls it
	// synchronised, or once a server on another machine had the same time. On other
	// systems it always counts as right. A confirmation before the last boot has an age
	// only if the clock was right then and is right now.
	TrustClock bool
	// Clock is the clock of the file and of its informers, for tests. A DeviceClock can
	// stand for a device that reboots and sleeps. Default the real clock.
	Clock clock.WithTicker

	// bookmarkInterval bounds how long a bookmark of an otherwise idle source waits for a
	// commit. Each commit wears the disk. An older version costs such a source nothing
	// after a crash, unless the server was restarted. The bound is checked each
	// FlushInterval. An orderly end writes the newest bookmark. Default 10 min.
	bookmarkInterval time.Duration
	// maxCommitBytes bounds a transaction. Further changes go into further transactions,
	// each with at least one change or record. Default 4 MiB.
	maxCommitBytes int
	// fillKeys is how many keys a commit adds at most to the set of a handler that was
	// Reset.
	fillKeys int
	// maxRelists is how many sources may relist at once. Default 8.
	maxRelists int
	// hotBytes is the budget of each source for decoded objects of its own. More than
	// eight sources share eight times as much. Each object counts three times its encoded
	// size, and 1.5 KB. Default 3 MiB.
	hotBytes int64
	// compactRatio is the share of unused pages above which an open file of at least
	// compactMinSize is compacted (see [DB.Compact]). Negative turns compaction off. The
	// default of 0.6 is more than a relist of all objects leaves unused. With less than
	// 0.1 the free pages of each commit may cause a compaction a minute. Not on Windows.
	compactRatio float64
	// compactMinSize is the size below which the keeper does not compact a file.
	// Default 16 MiB.
	compactMinSize int64
	// keepCorrupt is how many files that were set aside as <path>.corrupt-<time> are
	// kept, with at most keepCorruptBytes together. The oldest are removed. The newest
	// one always stays; negative keeps only that one. Defaults 3 and 1 GiB.
	keepCorrupt      int
	keepCorruptBytes int64
	// decrypt decrypts a file that Keyset has encrypted; see [Decrypt].
	decrypt bool

	// step is for tests. It is called at each step of a conversion or compaction.
	step func(name string) error
	// op is for tests. It is called before each operation on files. transactions says
	// that it is also called at the beginning of each transaction in the file in use.
	op           func(name, path string) error
	transactions bool
	// boot is for tests. It names this boot of the machine.
	boot string
	// plainRename is for tests. It stands for a system that cannot exchange names.
	plainRename bool
}

// mostNarrow is how large a 32-bit program lets its file become. bbolt maps 2 GiB for a larger
// one, which leaves no addresses for the map of its copy, as compaction needs.
const mostNarrow = 1 << 30

func (o Options) withDefaults() Options {
	if o.step == nil {
		o.step = func(string) error { return nil }
	}
	o.Window = cmp.Or(o.Window, 20*time.Millisecond)
	o.FlushInterval = max(cmp.Or(o.FlushInterval, 5*time.Second), time.Millisecond)
	o.bookmarkInterval = cmp.Or(o.bookmarkInterval, 10*time.Minute)
	o.maxCommitBytes = max(cmp.Or(o.maxCommitBytes, 4<<20), 1)
	o.fillKeys = max(cmp.Or(o.fillKeys, fillKeys), 1)
	o.JournalBytes = cmp.Or(o.JournalBytes, 16<<20)
	o.JournalAge = cmp.Or(o.JournalAge, time.Hour)
	o.maxRelists = max(cmp.Or(o.maxRelists, 8), 1)
	o.hotBytes = cmp.Or(o.hotBytes, 3<<20)
	o.ObjectMemory = cmp.Or(o.ObjectMemory, defaultObjectMemory())
	o.compactRatio = cmp.Or(o.compactRatio, 0.6)
	o.compactMinSize = cmp.Or(o.compactMinSize, 16<<20)
	o.CollectAfter = cmp.Or(o.CollectAfter, 30*24*time.Hour)
	o.LockTimeout = cmp.Or(o.LockTimeout, 500*time.Millisecond)
	if strconv.IntSize == 32 && (o.MaxSize <= 0 || o.MaxSize > mostNarrow) {
		o.MaxSize = mostNarrow
	}
	o.keepCorrupt = cmp.Or(o.keepCorrupt, 3)
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
	o.boot = cmp.Or(o.boot, osfile.BootID())
	return o
}

func init() {
	tuning.SetFile = func(options any, t tuning.File) {
		o := options.(*Options)
		o.bookmarkInterval = cmp.Or(t.BookmarkInterval, o.bookmarkInterval)
		o.maxCommitBytes = cmp.Or(t.MaxCommitBytes, o.maxCommitBytes)
		o.hotBytes = cmp.Or(t.HotBytes, o.hotBytes)
		o.compactRatio = cmp.Or(t.CompactRatio, o.compactRatio)
		o.boot = cmp.Or(t.Boot, o.boot)
		if t.Op != nil {
			o.op, o.transactions = t.Op, true
		}
	}
}
