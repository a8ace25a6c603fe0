package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// freePoll is how often it is tried whether a file is free. Nothing but its lock
// is looked at: to read the keyset may be to ask a key server.
const freePoll = 250 * time.Millisecond

// OpenOrTemporary is Open for programs that must go on while another process
// has the file: two replicas on one volume overlap during a rolling update. It
// then opens a new file in the system's folder for temporary ones, without
// syncs, which Close removes. free is nil if db is of the file itself;
// otherwise it is closed once the other process has let the file go: end the
// informers, close db, and open anew, which is what a restart of the program
// would be, also to handlers. It is not possible to go on with the file under
// informers that run: what they have told is not what the file has journaled.
//
// A temporary file knows nothing: its sources are listed, no deletes from
// before are told, and what durable handlers acknowledge is forgotten with it.
// Add them to a db of the file only.
func OpenOrTemporary(path string, o Options) (db *DB, free <-chan struct{}, err error) {
	db, err = Open(path, o)
	if !errors.Is(err, ErrLocked) || o.ReadOnly {
		return db, nil, err
	}
	locked := err
	dir, err := os.MkdirTemp("", "kubewake-")
	if err != nil {
		return nil, nil, fmt.Errorf("%w; nor can a temporary file be made: %w", locked, err)
	}
	t := o
	t.Durability = Process
	if db, err = Open(filepath.Join(dir, filepath.Base(path)), t); err != nil {
		return nil, nil, errors.Join(locked, err, os.RemoveAll(dir))
	}
	db.log().Info("Warning: another process has the file, a temporary one is used until it is free", "file", path, "temporary", db.path, "reason", locked.Error())
	freed := make(chan struct{})
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		for db.ctx.Err() == nil {
			if isFree(path) {
				close(freed)
				return
			}
			select {
			case <-db.opts.Clock.After(freePoll):
			case <-db.ctx.Done():
			}
		}
	}()
	db.cleanUp = func() error { <-polled; return os.RemoveAll(dir) }
	return db, freed, nil
}
