package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// openFile opens, and creates or replaces where the options allow it, the file
// of db.
func (db *DB) openFile() (*bolt.DB, error) {
	for attempt := 0; ; attempt++ {
		b, err := db.tryOpen()
		switch {
		case err == nil:
			return b, nil
		case errors.Is(err, fs.ErrNotExist) && !db.opts.ReadOnly:
			if err := createFile(db.path, db.opts.Clock.Now()); err != nil {
				return nil, db.explain(err)
			}
		case db.opts.ReadOnly, attempt > 1,
			errors.Is(err, ErrForeign) && db.opts.RefuseForeign:
			return nil, db.explain(err)
		case errors.Is(err, ErrDamaged), errors.Is(err, ErrForeign), errors.Is(err, ErrNewerFormat):
			if err := db.setAside(err); err != nil {
				return nil, err
			}
		default:
			return nil, db.explain(err)
		}
	}
}

func (db *DB) tryOpen() (*bolt.DB, error) {
	st, err := os.Stat(db.path)
	if err != nil {
		return nil, err
	}
	if st.Mode().IsRegular() && st.Size() == 0 {
		if db.opts.ReadOnly {
			return nil, fmt.Errorf("%w: it is empty", ErrDamaged)
		}
		return nil, fs.ErrNotExist // nothing in it that creating one could lose
	}
	if err := precheck(db.path); err != nil {
		return nil, err
	}
	var b *bolt.DB
	err = contain(func() (err error) {
		b, err = bolt.Open(db.path, 0o600, boltOptions(db.opts))
		return err
	})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, ErrLocked
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return nil, fmt.Errorf("%w: %v", ErrDamaged, err)
	case err != nil:
		return nil, err
	}
	// bbolt grows the file by this much; its own 16 MiB would be most of a
	// small file.
	b.AllocSize = 1 << 20
	if err := db.readHeader(b); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func boltOptions(o Options) *bolt.Options {
	b := &bolt.Options{
		Timeout:  o.LockTimeout,
		ReadOnly: o.ReadOnly,
		NoSync:   o.Durability == Process,
		MaxSize:  o.MaxSize,
		// The hash map finds a run of free pages in constant time.
		FreelistType: bolt.FreelistMapType,
	}
	// Address space, not memory: without it a writer that grows the map waits
	// for all readers and stops new ones meanwhile. Windows would grow the file.
	if runtime.GOOS != "windows" && ^uint(0)>>32 != 0 && !o.ReadOnly {
		b.InitialMmapSize = 1 << 30
	}
	return b
}

// readHeader tells our files from other programs' and from newer ones, and
// verifies a file whose last commits may not have reached the disk.
func (db *DB) readHeader(b *bolt.DB) error {
	var h header
	err := contain(func() error {
		return b.View(func(tx *bolt.Tx) error {
			f := tx.Bucket(bucketFile)
			if f == nil || f.Get(keyHeader) == nil {
				return fmt.Errorf("%w: it is another program's bbolt file", ErrForeign)
			}
			return getMsgpack(f, keyHeader, &h)
		})
	})
	switch {
	case err != nil:
		return err
	case h.Format > formatVersion:
		return fmt.Errorf("%w: format %d, this program knows %d", ErrNewerFormat, h.Format, formatVersion)
	}
	if !h.Clean && h.BootID != "" && h.BootID != bootID() {
		return contain(func() error { return b.View(verifyAll) })
	}
	return nil
}

// bootID names this boot of the machine, "" where that cannot be known.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// putHeader notes that the file is in use, or was closed in order. Only files
// written without syncs carry a boot id: the others need no verification.
func (db *DB) putHeader(tx *bolt.Tx, clean bool) error {
	f, err := tx.CreateBucketIfNotExists(bucketFile)
	if err != nil {
		return err
	}
	h := header{}
	if f.Get(keyHeader) != nil {
		if err := getMsgpack(f, keyHeader, &h); err != nil {
			return err
		}
	}
	h.Format, h.Clean, h.BootID = formatVersion, clean, ""
	if db.opts.Durability == Process {
		h.BootID = bootID()
	}
	return putMsgpack(f, keyHeader, h)
}

// createFile makes an empty file of ours: under a temporary name, synced, then
// renamed, since bbolt itself is not crash-safe while it creates its file
// (bbolt#567).
func createFile(path string, now time.Time) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".new-*")
	if err != nil {
		return err
	}
	name := tmp.Name()
	defer os.Remove(name)
	if err := tmp.Close(); err != nil {
		return err
	}
	b, err := bolt.Open(name, 0o600, &bolt.Options{Timeout: time.Second})
	if err != nil {
		return err
	}
	err = b.Update(func(tx *bolt.Tx) error {
		if _, err := tx.CreateBucket(bucketSources); err != nil {
			return err
		}
		f, err := tx.CreateBucket(bucketFile)
		if err != nil {
			return err
		}
		return putMsgpack(f, keyHeader, header{Format: formatVersion, Clean: true, Created: now.UnixNano()})
	})
	if err := errors.Join(err, b.Sync(), b.Close()); err != nil {
		return err
	}
	if err := os.Rename(name, path); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && runtime.GOOS != "windows" {
		return err
	}
	return nil
}

// setAside renames a file that cannot be used, for why.
func (db *DB) setAside(why error) error {
	free, err := lockFree(db.path)
	if err != nil {
		return db.explain(err)
	}
	if !free {
		return db.explain(ErrLocked)
	}
	stem := db.path + ".corrupt-" + db.opts.Clock.Now().UTC().Format("20060102T150405.000Z")
	aside := stem
	for n := 2; ; n++ {
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		}
		aside = fmt.Sprintf("%s-%d", stem, n)
	}
	if err := os.Rename(db.path, aside); err != nil {
		return db.explain(err)
	}
	db.aside = append(db.aside, aside)
	db.log().Error(why, "Set the file aside, it will be rebuilt from the server", "file", db.path, "aside", aside)
	return syncDir(filepath.Dir(db.path))
}

// explain names the file and what to do about err.
func (db *DB) explain(err error) error {
	hint := ""
	switch {
	case errors.Is(err, ErrLocked):
		hint = "; stop that process or use another file"
	case errors.Is(err, ErrForeign):
		hint = "; choose another file, or move this one away"
	case errors.Is(err, ErrNewerFormat):
		hint = "; use a newer kubewake or another file"
	case errors.Is(err, ErrDamaged):
		hint = "; move it away, it will be rebuilt from the server"
	case errors.Is(err, fs.ErrNotExist):
		hint = "; is the path right?"
	case errors.Is(err, fs.ErrPermission):
		hint = "; the file and its folder must be writable for this user"
	}
	return fmt.Errorf("boltstore: open %s: %w%s", db.path, err, hint)
}
