package factory

import (
	"errors"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/claimants"
)

// File says where the objects of a factory are kept, and how.
type File struct {
	// Path of the file.
	Path string
	// Options of the file.
	Options boltstore.Options
	// Informers has the options of the informers.
	Informers Options
}

// WakeFile is [Wake] for programs that have one factory for their whole life and use the
// file for nothing else. It opens the file, which stays open until the process ends,
// since workers may read while the factory shuts down. Once the factory's Shutdown has
// returned, the file has all that the next life needs. A second WakeFile of the path in
// one process fails with boltstore.ErrLocked: to let a test live twice, use Wake.
//
// If no type wakes, WakeFile closes the file. As with Wake, f caches the types that the
// error names in memory.
func WakeFile(f any, file File, types ...runtime.Object) error {
	db, err := boltstore.Open(file.Path, file.Options)
	if err != nil {
		return err
	}
	if err = Wake(f, db, file.Informers, types...); err == nil {
		return nil
	}
	if len(claimants.Of(db)) > 0 {
		return err
	}
	return errors.Join(err, db.Close())
}
