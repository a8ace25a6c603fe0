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

	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// freePoll is how often the lock of a file is tried. Only the lock is tried, since
// reading the keyset may mean asking a key server.
const freePoll = 250 * time.Millisecond

// OpenOrTemporary is Open for programs that must go on while another process has the
// file open, as two replicas on one volume do during a rolling update. If the file is
// in use, it opens a new file without syncs in the system's folder for temporary files.
// Close removes that file. If the program is killed, the next call by any program of
// the user removes it.
//
// free is nil if db is the file itself. Otherwise it is closed once no other process has
// the file open. Then end the informers, close db, and open again. To handlers this is a
// restart of the program. Running informers cannot go on with the file, since its journal
// does not have what they have told.
//
// A temporary file begins empty: its sources are listed, no earlier deletes are told,
// and acknowledgements of durable handlers are lost with it. Add durable handlers only
// to a db of the file itself.
func OpenOrTemporary(path string, o Options) (db *DB, free <-chan struct{}, err error) {
	if !o.ReadOnly {
		removeTemporaries(*o.withDefaults().Logger)
	}
	if abs, err := filepath.Abs(path); err == nil && path != "" {
		path = abs // valid even if the program changes its working folder
	}
	db, err = Open(path, o)
	if !errors.Is(err, ErrLocked) || o.ReadOnly {
		return db, nil, err
	}
	locked := err
	dir, release, err := temporaryDir()
	if err != nil {
		return nil, nil, fmt.Errorf("%w; nor can a temporary file be made: %w", locked, err)
	}
	t := o
	t.Durability = DurabilityProcess
	remove := func() error {
		defer release()
		return os.RemoveAll(dir)
	}
	if db, err = Open(filepath.Join(dir, filepath.Base(path)), t); err != nil {
		return nil, nil, errors.Join(locked, err, remove())
	}
	db.log().Info("Warning: another process has the file, a temporary one is used until it is free", "file", path, "temporary", db.path, "reason", locked.Error())
	freed := make(chan struct{})
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		for db.whileOpen.ctx.Err() == nil {
			if osfile.IsFree(path) {
				close(freed)
				return
			}
			select {
			case <-db.opts.Clock.After(freePoll):
			case <-db.whileOpen.ctx.Done():
			}
		}
	}()
	db.whileOpen.cleanUp = func() error { <-polled; return remove() }
	return db, freed, nil
}

// temporaryPrefix begins the names of folders of temporary files.
const temporaryPrefix = "kubewake-temporary-"

// temporaryDir makes a folder for a temporary file. The folder's lock says that it is
// in use, until release is called.
func temporaryDir() (dir string, release func(), err error) {
	for range 10 {
		if dir, err = os.MkdirTemp("", temporaryPrefix); err != nil {
			return "", nil, err
		}
		release, err = osfile.Lock(dir)
		switch {
		case err == nil:
			return dir, release, nil
		case errors.Is(err, ErrLocked), errors.Is(err, fs.ErrNotExist): // another program removed it as a leftover before it was locked
		default: // without locks no program removes it
			return dir, func() {}, nil
		}
	}
	return "", nil, err
}

// removeTemporaries removes the folders that killed programs of this user have left.
// Each has a copy of such a program's cache.
func removeTemporaries(log klog.Logger) {
	all, err := os.ReadDir(os.TempDir())
	if err != nil {
		return
	}
	for _, d := range all {
		if !d.IsDir() || !strings.HasPrefix(d.Name(), temporaryPrefix) {
			continue
		}
		if st, err := d.Info(); err != nil || osfile.UnsafeFor(st, false) != "" {
			continue
		}
		dir := filepath.Join(os.TempDir(), d.Name())
		release, err := osfile.Lock(dir)
		if err != nil {
			continue
		}
		err = os.RemoveAll(dir)
		release()
		switch {
		case err == nil:
			log.Info("Removed a temporary file of a program that was killed", "folder", dir)
		case runtime.GOOS != "windows": // on Windows folders have no locks, so it may be in use
			log.Error(err, "A temporary file of a program that was killed was not removed", "folder", dir)
		}
	}
}
