package controllerruntime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
)

// File says where a manager's cache is, and how.
type File struct {
	// Path of the file.
	Path string
	// Options of the file.
	Options boltstore.Options
	// Informers has the options of all informers, see informer.ForControllerRuntime.
	Informers informer.Options
	// InMemory has an object of each kind that must not be in the file, such as
	// &corev1.Secret{}. client-go's informers keep these kinds, in all versions and forms.
	// What an earlier life has put into the file stays there for CollectAfter.
	InMemory []client.Object
}

// NewManager is ctrl.NewManager with the cache in the file. It wraps a copy of cfg. Start
// closes the file when the manager has ended in order. The file stays open where reconciles
// may still run: the lease was lost, the grace period has passed, or there is none. Then the
// file is closed by the end of the process, or by the next NewManager of that path. If the
// manager is never started, the file stays open until the process ends. Once the file is
// closed, reads of the cache fail with boltstore.ErrClosed. A NewCache in the options must
// make its cache with the NewInformer that it is given. If it does not, the log says that
// the file is not used, or with Strict the cache's reads fail.
//
// A manager's RESTMapper asks the server which kinds it has. If the server does not answer
// within a second, NewManager's goes by the kinds in the file, so that a manager can start
// without a link (see informer.Options.MaxStaleness). A MapperProvider in the options
// takes its place.
//
// The metrics of package informer/metrics are in controller-runtime's registry. For
// example, kubewake_fallback_informers_total counts the informers that go without the
// file. Register no other collector of this file there, and a collector of another file
// only with a label (see metrics.NewCollector): if two metrics are the same, the registry
// returns an error instead of all metrics.
func NewManager(cfg *rest.Config, o manager.Options, f File) (manager.Manager, error) {
	if cfg == nil {
		return nil, errors.New("controllerruntime: a manager needs a rest.Config, as ctrl.GetConfig gives it")
	}
	if o.Cache.NewInformer != nil {
		return nil, errInformers
	}
	scheme := schemeOf(o.Cache, o.Scheme)
	apart, err := f.inMemory(scheme)
	if err != nil {
		return nil, err
	}
	leftOpen.close(f.Path)
	opened, err := boltstore.Open(f.Path, f.Options)
	if err != nil {
		return nil, err
	}
	db := &file{DB: opened}
	o.Cache.NewInformer = apart(scheme, informer.ForControllerRuntime(db.DB, f.Informers))
	name := f.Informers.Reflector.Cluster
	wake(&o.MapperProvider, &o.Cache, scheme, db.DB, name)
	o.NewCache = db.caches(o.NewCache, f.Informers.Strict)
	mgr, err := manager.New(reflector.WrapConfig(rest.CopyConfig(cfg)), o)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	files.add(db.DB)
	return &kept{Manager: mgr, db: db, apart: apart, cluster: clusterName(name, cfg), elects: o.LeaderElection,
		graceless: o.GracefulShutdownTimeout != nil && *o.GracefulShutdownTimeout == 0}, nil
}

var errInformers = errors.New("controllerruntime: the options have a Cache.NewInformer, so the file would not be " +
	"used: leave it out, or use informer.ForControllerRuntime with ctrl.NewManager")

// FileOf returns the file of a manager that NewManager has made, nil for any other. Its
// checks are one line each:
//
//	err := mgr.AddReadyzCheck("cache", informer.Ready(controllerruntime.FileOf(mgr), 0))
//	err = mgr.AddHealthzCheck("cache", informer.Live(controllerruntime.FileOf(mgr)))
func FileOf(mgr manager.Manager) *boltstore.DB {
	if k, ok := mgr.(*kept); ok {
		return k.db.DB
	}
	return nil
}

// kept is a manager that has a file.
type kept struct {
	manager.Manager
	db        *file
	apart     func(*runtime.Scheme, newInformer) newInformer // see File.InMemory
	cluster   string                                         // its own cluster's name in the file
	elects    bool                                           // it has a lease
	graceless bool                                           // it does not wait for its work to end
	started   atomic.Bool
}

// Start runs the manager, and closes the file if the manager's work has ended. A second
// call is an error, and leaves the file to the first.
func (k *kept) Start(ctx context.Context) error {
	if k.started.Swap(true) {
		return errors.New("controllerruntime: the manager was started before, and its file is closed when it ends: " +
			"make another manager")
	}
	err := k.Manager.Start(ctx)
	files.remove(k.db.DB)
	if k.mayWork(err) {
		leftOpen.add(k.db)
		return err
	}
	return errors.Join(err, k.db.Close())
}

// mayWork says whether reconciles may still run after Start has ended with err. Of a
// manager with a lease each error may be the loss of that, after which it does not wait.
func (k *kept) mayWork(err error) bool {
	return k.graceless || errors.Is(err, context.DeadlineExceeded) || k.elects && err != nil
}

// leftOpen are the files of managers that have ended, and whose work may go on.
var leftOpen openFiles

type openFiles struct {
	mu  sync.Mutex
	dbs []*file
}

func (o *openFiles) add(db *file) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dbs = append(o.dbs, db)
}

// close closes the files that were opened at the path: another manager takes their place.
func (o *openFiles) close(path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return // Open says so
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.dbs = slices.DeleteFunc(o.dbs, func(db *file) bool {
		if !sameFile(db.Path(), path) {
			return false
		}
		if err := db.Close(); err != nil {
			log.Log.Info("What the last manager had not committed will be fetched again", "file", path, "error",
				err.Error())
		}
		return true
	})
}

// sameFile says whether two absolute paths are of one file, as through a symlink.
func sameFile(a, b string) bool {
	if a == b {
		return true
	}
	one, err := os.Stat(a)
	other, err1 := os.Stat(b)
	return err == nil && err1 == nil && os.SameFile(one, other)
}
