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

// freePoll is how often it is tried whether a file is free. Nothing but its lock
// is looked at: to read the keyset may be to ask a key server.
const freePoll = 250 * time.Millisecond

// OpenOrTemporary is Open for programs that must go on while another process
// has the file: two replicas on one volume overlap during a rolling update. It
// then opens a new file in the system's folder for temporary ones, without
// syncs, which Close removes, or, should the program be killed, the next call of
// any program of this user's. free is nil if db is of the file itself;
// otherwise it is closed once all other processes have let the file go: end the
// informers, close db, and open anew, which is what a restart of the program
// would be, also to handlers. It is not possible to go on with the file under
// informers that run: what they have told is not what the file has journaled.
//
// A temporary file knows nothing: its sources are listed, no deletes from
// before are told, and what durable handlers acknowledge is forgotten with it.
// Add them to a db of the file only.
func OpenOrTemporary(path string, o Options) (db *DB, free <-chan struct{}, err error) {
	if !o.ReadOnly {
		removeTemporaries(*o.withDefaults().Logger)
	}
	if abs, err := filepath.Abs(path); err == nil && path != "" {
		path = abs // where it is looked for, wherever the program goes
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
		for db.life.ctx.Err() == nil {
			if osfile.IsFree(path) {
				close(freed)
				return
			}
			select {
			case <-db.opts.Clock.After(freePoll):
			case <-db.life.ctx.Done():
			}
		}
	}()
	db.life.cleanUp = func() error { <-polled; return remove() }
	return db, freed, nil
}

// temporaryPrefix begins the names of folders of temporary files.
const temporaryPrefix = "kubewake-temporary-"

// temporaryDir makes a folder for a temporary file. Its lock says that it is in
// use until release is called.
func temporaryDir() (dir string, release func(), err error) {
	for range 10 {
		if dir, err = os.MkdirTemp("", temporaryPrefix); err != nil {
			return "", nil, err
		}
		release, err = osfile.Lock(dir)
		switch {
		case err == nil:
			return dir, release, nil
		case errors.Is(err, ErrLocked), errors.Is(err, fs.ErrNotExist): // taken for one that was left, before it had its lock
		default: // there are no locks, so nobody removes it
			return dir, func() {}, nil
		}
	}
	return "", nil, err
}

// removeTemporaries removes the folders that programs of this user's have left
// when they were killed: each has a copy of what such a program had cached.
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
		case runtime.GOOS != "windows": // where it may be in use: folders have no locks
			log.Error(err, "A temporary file of a program that was killed was not removed", "folder", dir)
		}
	}
}
