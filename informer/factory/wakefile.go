package factory

import (
	"errors"
	"path/filepath"
	"sync"

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

// files are those that WakeFile has opened, by path.
var files = struct {
	sync.Mutex
	open map[string]*boltstore.DB
}{open: map[string]*boltstore.DB{}}

// WakeFile is [Wake] for programs that use the file for nothing else. It opens the file, which
// stays open until the process ends, since workers may read while the factory shuts down. Once
// the factory's Shutdown has returned, the file has all that the next life needs.
//
// Further calls with the same path, for other factories or after a factory's Shutdown, use the
// file that is open, with the options of the first call.
//
// If no type wakes, WakeFile closes a file that it has opened. As with Wake, f caches the types
// that the error names in memory.
func WakeFile(f any, file File, types ...runtime.Object) error {
	files.Lock()
	defer files.Unlock()
	path, err := filepath.Abs(file.Path)
	if err != nil {
		return err
	}
	db := files.open[path]
	shared := db != nil && !errors.Is(db.AtPath(), boltstore.ErrMoved)
	if !shared {
		if db, err = boltstore.Open(path, file.Options); err != nil {
			return err
		}
	}
	err = Wake(f, db, file.Informers, types...)
	if err == nil || shared || len(claimants.Of(db)) > 0 {
		files.open[path] = db
		return err
	}
	return errors.Join(err, db.Close())
}
