package boltstore

import (
	"errors"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// Errors that callers may test for with errors.Is. Each is wrapped with the file or
// source that it concerns and with what to do about it.
var (
	// ErrLocked: another process, or another DB of this one, has the file open.
	ErrLocked = faults.ErrLocked
	// ErrUnsafe: other users can change the file or its folder.
	ErrUnsafe = faults.ErrUnsafe
	// ErrForeign: the file exists and is not a kubewake file.
	ErrForeign = faults.ErrForeign
	// ErrDamaged: the file, or a record in it, is not as it was written.
	ErrDamaged = faults.ErrDamaged
	// ErrNewerFormat: the file was written by a newer kubewake.
	ErrNewerFormat = errors.New("file format is newer than this program")
	// ErrKeyset: the keyset is missing, malformed, or not the file's. The file is
	// unchanged.
	ErrKeyset = seal.ErrKeyset
	// ErrClosed: the DB is closed, or the claim on the source was released.
	ErrClosed = errors.New("closed")
	// ErrClaimed: a live claim on the same source, or of the same handler, exists in this
	// process.
	ErrClaimed = errors.New("already claimed")
	// ErrAbandoned: a relist could not store what it had read, and must begin again.
	ErrAbandoned = errors.New("the relist has to begin again")
	// ErrMoved: the file was removed from its path, or another file is there.
	ErrMoved = errors.New("the file that is open is no longer at its path")
	// ErrTaken: another process has written to a file that this one opened for reading
	// with Options.GiveWay.
	ErrTaken = errors.New("another program has taken the file over and written to it while it was read; try again")
	// ErrNoSource: the file does not have that source.
	ErrNoSource = errors.New("source is not in the file")
	// ErrFed: a server feeds the source, so the program cannot write to it.
	ErrFed = errors.New("the informer that runs is the only writer of its source; " +
		"to read back what the program has just written to the server, use client-go's cache.MutationCache")
)
