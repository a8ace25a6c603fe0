package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/kubewake/kubewake/boltstore/internal/beside"
	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/osfile"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// Open opens the file at path, or creates it. It also makes the file's folder, for this
// user alone, if only that is missing. A file that is damaged, or of a newer format, is
// renamed to <path>.corrupt-<time>, and a new file takes its place, with everything that
// verifies of a damaged one. The log and [DB.AsidePaths] name the renamed file. Another
// program's file stays as it is, and the error is ErrForeign, unless
// Options.ReplaceForeign is set. Anything but a regular file, such as a folder, always
// stays. Errors say what to do. Close releases the file.
func Open(path string, o Options) (*DB, error) {
	db, err := newDB(path, o.withDefaults())
	if err != nil {
		return nil, err
	}
	path = db.path
	if err := db.converting().readKeyset(); err != nil {
		return nil, err
	}
	if err := db.opening().openFile(); err != nil {
		return nil, err
	}
	if db.opts.ReadOnly {
		return db, nil
	}
	if name := osfile.Untrusted(filepath.Dir(path)); name != "" {
		db.log().Info("Warning: locks and syncs of this file system cannot be relied on; use a local disk", "file",
			path, "fileSystem", name)
	}
	if osfile.FastCommits(filepath.Dir(path)) {
		db.log().Info("Warning: this ext4 has the feature fast_commit, and may lose commits when the power fails; "+
			"turn it off (tune2fs -O ^fast_commit)", "file", path)
	}
	db.h.noteInUse = func(tx *bolt.Tx) error {
		return errors.Join(db.replacing().putHeader(tx, false), db.judged.noteLost(tx))
	}
	if db.opts.Durability == DurabilityProcess {
		// The header must say on disk that the file is in use, before any write that is
		// not synced.
		if err := db.converting().durably(func(*bolt.Tx) error { return nil }, nil); err != nil {
			return nil, errors.Join(db.opening().explain(err), db.h.swap(nil).Close())
		}
	}
	db.commit = newCommitter(db)
	db.h.tripped = db.meet
	return db, nil
}

// openFile opens db's file. It creates or replaces the file if the options allow it.
func (db opening) openFile() error {
	if err := db.checkPath(); err != nil {
		return db.explain(err)
	}
	for attempt := 0; ; attempt++ {
		b, err := db.tryOpen()
		if err == nil {
			err = db.settle(b)
		}
		switch {
		case err == nil:
			return nil
		case errors.Is(err, errReplaced) && attempt < 4:
		case errors.Is(err, fs.ErrNotExist) && !db.opts.ReadOnly && attempt < 4:
			if err := db.create(); err != nil {
				return db.explain(err)
			}
		case db.opts.ReadOnly, attempt > 1,
			errors.Is(err, errNoFile),
			errors.Is(err, ErrForeign) && !db.opts.ReplaceForeign:
			return db.explain(err)
		case errors.Is(err, ErrDamaged), errors.Is(err, ErrForeign), errors.Is(err, ErrNewerFormat):
			if err := db.replace(err); err != nil && !errors.Is(err, errReplaced) && !errors.Is(err, ErrMoved) {
				return err
			}
		default:
			return db.explain(err)
		}
	}
}

// settle gives the file that was opened the data key that it should have.
func (db opening) settle(b *boltFile) error {
	db.h.swap(b)
	if db.opts.ReadOnly {
		return nil
	}
	db.beside.RemoveLeftovers()
	err := db.converting().settleKeys()
	if err != nil {
		err = faults.Join(err, db.h.swap(nil).Close())
	}
	return err
}

func (db opening) tryOpen() (*boltFile, error) {
	st, err := os.Stat(db.path)
	if err != nil {
		return nil, err
	}
	db.judged.file = st
	if !st.Mode().IsRegular() {
		return nil, errNoFile
	}
	if osfile.IsEmpty(db.path) {
		if db.opts.ReadOnly {
			return nil, errEmpty
		}
		return nil, fs.ErrNotExist // nothing can be saved of an empty file
	}
	if strconv.IntSize == 32 && st.Size() > math.MaxInt32 {
		return nil, syscall.ENOMEM
	}
	if err := db.lookAt(); err != nil {
		return nil, err
	}
	var b *boltFile
	err = faults.Contain(func() (err error) {
		b, err = openBolt(db.path, boltOptions(db.opts))
		return err
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, ErrLocked
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum),
		errors.Is(err, berrors.ErrVersionMismatch):
		return nil, fmt.Errorf("%w: %v", ErrDamaged, err)
	case err != nil:
		return nil, err
	}
	// While bbolt waited for the lock, the holder may have replaced the file. The file
	// opened here then has no name any more.
	if !osfile.IsAt(b.f, db.path) {
		return nil, errors.Join(errReplaced, b.Close())
	}
	b.AllocSize = db.opts.allocSize()
	if db.h.late != nil {
		var same bool
		if same, err = db.h.late.In(b.f); err == nil && !same {
			err = errReplaced
		}
	}
	if err == nil && db.lends() {
		err = db.lend(b)
	}
	if err == nil {
		err = db.judgeHeader(b)
	}
	if errors.Is(err, ErrTaken) {
		err = errReplaced
	}
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// errEmpty: a file that kubewake makes is never empty.
var errEmpty = fmt.Errorf("%w: it is empty", ErrDamaged)

// errNoFile: opening a device or a pipe may wait for ever, and it must not be replaced.
var errNoFile = fmt.Errorf("%w: it is not a regular file", ErrForeign)

// lookAt verifies the file's pages under its lock: a file that is being written looks
// damaged.
func (db opening) lookAt() error {
	if db.lends() {
		return db.lookLent()
	}
	release, err := db.files.WaitLock(db.path, db.opts.LockTimeout, db.opts.ReadOnly)
	switch {
	case err == nil:
		defer release()
	case errors.Is(err, ErrLocked), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return err
	} // otherwise the file system has no locks, and bbolt will say so
	if db.opts.ReadOnly {
		db.h.late, err = precheckLate(db.path)
	} else {
		db.judged.lost, err = precheck(db.path)
	}
	return err
}

var errReplaced = beside.ErrReplaced

// allocSize is the step, in bytes, in which bbolt grows the file. bbolt's own 16 MiB
// would be most of a small file. bbolt subtracts the step from MaxSize.
func (o Options) allocSize() int {
	if o.MaxSize > 0 {
		return min(1<<20, o.MaxSize/16)
	}
	return 1 << 20
}

func boltOptions(o Options) *bolt.Options {
	b := &bolt.Options{
		Timeout:  o.LockTimeout,
		ReadOnly: o.ReadOnly,
		NoSync:   o.Durability == DurabilityProcess,
		MaxSize:  o.MaxSize,
		// The hash map finds free pages in a row in constant time.
		FreelistType: bolt.FreelistMapType,
	}
	b.OpenFile = os.OpenFile
	if !o.AllowUnsafePath {
		b.OpenFile = osfile.OpenSafe(o.ReadOnly)
	}
	// This is address space, not memory. Without it, a writer that grows the map waits
	// for all readers and keeps new ones out. Windows would grow the file.
	if runtime.GOOS != "windows" && ^uint(0)>>32 != 0 && !o.ReadOnly {
		b.InitialMmapSize = 1 << 30
	}
	return b
}

// judgeHeader tells files that this program can use from other programs' files and from
// newer ones. It verifies a file whose last commits may not have reached the disk.
func (db opening) judgeHeader(b *boltFile) error {
	var h header
	err := faults.Contain(func() error {
		return b.View(func(tx *bolt.Tx) error {
			f := tx.Bucket(layout.BucketFile)
			if tx.Bucket(layout.BucketSources) == nil && (f == nil || f.Get(layout.KeyHeader) == nil) {
				return foreign(db.path)
			}
			var err error
			h, err = getHeader(tx)
			return err
		})
	})
	if err == nil {
		err = checkFormat(h.Format)
	}
	if err != nil {
		return err
	}
	s, err := db.converting().unlock(h)
	if err != nil {
		return err
	}
	db.h.seal, db.h.keys, db.h.rotate = s, h.Keys, h.Rotate
	var names checkedNames
	err = faults.Contain(func() error { return b.View(func(tx *bolt.Tx) error { return names.check(tx, s) }) })
	if err != nil {
		return err
	}
	db.judged.lost = db.judged.lost || names.unread
	if h.Clean || h.BootID == "" || h.BootID == db.opts.boot && h.BootID != osfile.UnknownBoot {
		return nil
	}
	// The last commits may be on the disk in part, and bbolt's list of free pages cannot be
	// verified. Some disks lose even what they have said to be synced.
	switch {
	case !h.SyncedCommits && !db.opts.ReadOnly:
		return errUncleanBoot
	case h.SyncedCommits && db.opts.ReadOnly:
		return nil // it may be another machine's file: each reader would read all of it
	}
	if _, err := pages.Check(db.path, func([]string) bool { return false }); err != nil {
		return err
	}
	return faults.Contain(func() error {
		return b.View(func(tx *bolt.Tx) error { return verifyAll(tx, s) })
	})
}

// errUncleanBoot: the machine stopped while the file was written without syncs. Its
// contents are verified and copied to a new file.
var errUncleanBoot = fmt.Errorf("%w: the machine was not shut down in order", ErrDamaged)

// putHeader notes in which boot the file is in use, or that it was closed in order.
func (db replacing) putHeader(tx *bolt.Tx, clean bool) error {
	return updateHeader(tx, func(h *header) {
		h.Format, h.Clean, h.BootID = formatVersion, clean, db.opts.boot
		h.SyncedCommits = db.opts.Durability != DurabilityProcess
	})
}

// tempFile makes an empty file beside the one at path, to replace that one.
func (db replacing) tempFile(path string) (string, error) {
	was := db.judged.file
	if b := db.h.now.Load(); b != nil {
		was = b.is
	}
	return db.beside.Temp(path, was)
}

// makeFile makes a file for path under a temporary name, and returns that name. fill, if
// not nil, fills it. Of h only the fields about keys and lost names are used.
func (db replacing) makeFile(path string, h header, fill func(*bolt.DB) error) (name string, err error) {
	if name, err = db.tempFile(path); err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = faults.Join(err, db.files.Remove(name))
		}
	}()
	o := boltOptions(db.opts)
	o.Timeout, o.NoSync, o.MaxSize = time.Second, true, 0 // synced once, at the end
	b, err := bolt.Open(name, 0o600, o)
	if err != nil {
		return name, err
	}
	b.AllocSize = min(64<<10, db.opts.allocSize()) // little more than the file needs
	err = db.files.Write(b, func(tx *bolt.Tx) error {
		if _, err := layout.Create(tx, layout.BucketSources); err != nil {
			return err
		}
		f, err := layout.Create(tx, layout.BucketFile)
		if err != nil {
			return err
		}
		h.Format, h.Clean, h.Created = formatVersion, true, db.opts.Clock.Now().UnixNano()
		return format.Put(f, layout.KeyHeader, h)
	})
	if err == nil && fill != nil {
		err = fill(b)
	}
	if err == nil {
		err = db.files.Sync(b)
	}
	return name, faults.Join(err, b.Close())
}

// explain adds to err the file's name and what to do.
func (db opening) explain(err error) error {
	hint := ""
	switch {
	case errors.Is(err, ErrLocked):
		holder := osfile.Holder(db.path)
		hint = holder + "; stop that process or use another file"
		if holder == fmt.Sprintf(" (pid %d)", os.Getpid()) {
			err, hint = lockedHere(holder), "; share the DB that has it, close that one first, or use another file"
		}
	case errors.Is(err, ErrUnsafe):
		hint = "; put it into a folder that only this user can write (chmod go-w, mkdir -m 0700; in a pod a folder " +
			"below the volume's, and with an fsGroup fsGroupChangePolicy: OnRootMismatch), or allow it " +
			"(Options.AllowUnsafePath; kubewake: --allow-unsafe-path)"
	case errors.Is(err, errNoFile):
		hint = "; give the path of a file, or one at which there is nothing yet"
	case errors.Is(err, ErrForeign):
		hint = "; choose another file, or move this one away"
	case errors.Is(err, ErrNewerFormat):
		hint = "; use a newer kubewake or another file"
	case errors.Is(err, errUncleanBoot):
		hint = "; open it with the program that uses it, which verifies it first"
	case errors.Is(err, ErrDamaged):
		hint = "; open it" + savedByProgram
	case db.path == "":
		hint = "; the path is empty"
	case errors.Is(err, fs.ErrNotExist):
		hint = "; is the path right?"
	case errors.Is(err, syscall.ENOMEM): // of address space
		hint = "; a file of this size needs a 64-bit program"
	case errors.Is(err, syscall.EROFS):
		hint = "; mount it for writing, or choose a file on another file system"
	case errors.Is(err, fs.ErrPermission) && db.opts.ReadOnly:
		hint = "; only its user and root can read it"
	case errors.Is(err, fs.ErrPermission):
		hint = "; the file and its folder must be writable for this user"
	}
	return fmt.Errorf("boltstore: open %s: %w%s", db.given, err, hint)
}

// lockedHere is the ErrLocked of a file that another DB of this process has open, " (pid 12)".
type lockedHere string

func (l lockedHere) Error() string      { return "this process" + string(l) + " has the file open already" }
func (lockedHere) Is(target error) bool { return target == ErrLocked }

// opening is the part of a DB that finds, judges, creates and opens the file.
type opening struct{ *DB }

func (db *DB) opening() opening { return opening{db} }
