package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/kubewake/kubewake/boltstore"
)

// TestLinkToTheFile: the next manager may name the file by another path.
func TestLinkToTheFile(t *testing.T) {
	dir := t.TempDir()
	db, err := boltstore.Open(filepath.Join(dir, "test.db"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	k := &kept{Manager: ends{}, db: &file{DB: db}, graceless: true}
	if err := k.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link.db")
	if err := os.Symlink(db.Path(), link); err != nil {
		t.Skip(err) // Windows asks for a privilege
	}
	next, err := NewManager(shop(t).RESTConfig(), options(),
		File{Path: link, Options: boltstore.Options{AllowUnsafePath: true}})
	if err != nil {
		t.Fatal(err)
	}
	_, end := started(t, next)
	end()
}

// TestListAfterGrace: a reconcile that outlasts the manager still lists all objects. An
// empty list would look like deletes. The next manager of the file takes it over.
func TestListAfterGrace(t *testing.T) {
	sim := shop(t, "a", "b")
	f := File{Path: filepath.Join(t.TempDir(), "test.db")}
	o := options()
	o.GracefulShutdownTimeout = new(time.Millisecond)
	mgr, err := NewManager(sim.RESTConfig(), o, f)
	if err != nil {
		t.Fatal(err)
	}
	working, release, worked := make(chan struct{}), make(chan struct{}), make(chan struct{})
	if err := mgr.Add(manager.RunnableFunc(func(context.Context) error {
		defer close(worked)
		close(working)
		<-release
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	<-working
	var maps corev1.ConfigMapList
	if err := mgr.GetClient().List(ctx, &maps); err != nil || len(maps.Items) != 2 {
		t.Fatal(maps.Items, err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal("the work was waited for: ", err)
	}
	if err := mgr.GetClient().List(t.Context(), &maps); err != nil || len(maps.Items) != 2 {
		t.Errorf("after the end of the manager: %d objects, %v", len(maps.Items), err)
	}
	close(release)
	<-worked
	next, err := NewManager(sim.RESTConfig(), options(), f)
	if err != nil {
		t.Fatal(err)
	}
	if err := FileOf(mgr).Err(); !errors.Is(err, boltstore.ErrClosed) {
		t.Errorf("the first manager's file: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := next.Start(ended); err != nil {
		t.Error(err)
	}
}

// TestEnds: when Start closes the file.
func TestEnds(t *testing.T) {
	lost, passed := errors.New("leader election lost"), fmt.Errorf("waiting: %w", context.DeadlineExceeded)
	for name, c := range map[string]struct {
		elects, graceless bool
		err               error
		closed            bool
	}{
		"in order":                 {closed: true},
		"in order, with a lease":   {elects: true, closed: true},
		"an error":                 {err: lost, closed: true},
		"the lease is lost":        {elects: true, err: lost},
		"the grace period is over": {err: passed},
		"no grace period":          {graceless: true},
	} {
		t.Run(name, func(t *testing.T) {
			db, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"), boltstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { leftOpen.close(db.Path()) })
			k := &kept{Manager: ends{err: c.err}, db: &file{DB: db}, elects: c.elects, graceless: c.graceless}
			if err := k.Start(t.Context()); !errors.Is(err, c.err) {
				t.Errorf("%v, not %v", err, c.err)
			}
			if closed := errors.Is(db.Err(), boltstore.ErrClosed); closed != c.closed {
				t.Errorf("closed: %v", closed)
			}
		})
	}
}

// ends returns a manager that ends at once.
type ends struct {
	manager.Manager
	err error
}

func (e ends) Start(context.Context) error { return e.err }

// TestListAfterTheEnd: once the manager has ended and its file is closed, reads of its cache
// are errors. Whoever still reads must not take an empty list for deletes.
func TestListAfterTheEnd(t *testing.T) {
	sim := shop(t, "a", "b")
	for name, newCache := range map[string]cache.NewCacheFunc{
		"default": nil,
		"the program's": func(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
			o.ReaderFailOnMissingInformer = false
			return cache.New(cfg, o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.NewCache = newCache
			mgr, err := NewManager(sim.RESTConfig(), o, File{Path: filepath.Join(t.TempDir(), "test.db")})
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := started(t, mgr)
			var maps corev1.ConfigMapList
			if err := mgr.GetClient().List(ctx, &maps); err != nil || len(maps.Items) != 2 {
				t.Errorf("%d objects, %v", len(maps.Items), err)
			}
			end()
			for what, r := range map[string]client.Reader{"client": mgr.GetClient(), "cache": mgr.GetCache()} {
				if err := r.List(t.Context(), &maps); !errors.Is(err, boltstore.ErrClosed) {
					t.Errorf("the %s lists %d objects, %v", what, len(maps.Items), err)
				}
				if err := r.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "a"},
					&corev1.ConfigMap{}); !errors.Is(err, boltstore.ErrClosed) {
					t.Errorf("the %s gets one: %v", what, err)
				}
			}
		})
	}
}
