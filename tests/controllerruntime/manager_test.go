package controllerruntime

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	registry "sigs.k8s.io/controller-runtime/pkg/metrics"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	durable "github.com/kubewake/kubewake/informer/controllerruntime"
	"github.com/kubewake/kubewake/reflector"
)

// of restricts a manager's cache to a population's objects.
func of(p *population) ctrl.Options {
	o := cache.Options{DefaultLabelSelector: labels.SelectorFromSet(labels.Set{"test": p.mark})}
	return ctrl.Options{Metrics: metrics.Options{BindAddress: "0"}, Cache: o,
		Controller: config.Controller{SkipNameValidation: new(true)}}
}

// run starts a manager. It returns a function that ends it and returns its error.
func run(t *testing.T, mgr manager.Manager) (end func() error, ended <-chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(cancel)
	return func() error { cancel(); return <-done }, done
}

// TestSecondManager: if two managers have one file and the same lists, the second one
// keeps its objects in memory, and sees the same.
func TestSecondManager(t *testing.T) {
	p := newPopulation(t)
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "cache.db"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	cfg := reflector.WrapConfig(server(t).Config())
	for n := range 2 {
		o := of(p)
		o.Cache.NewInformer = informer.ForControllerRuntime(db, informer.Options{})
		mgr, err := ctrl.NewManager(cfg, o)
		if err != nil {
			t.Fatal(err)
		}
		end, _ := run(t, mgr)
		defer func() {
			if err := end(); err != nil {
				t.Error(err)
			}
		}()
		var all corev1.ConfigMapList
		eventually(t, "the manager's cache is read", func() bool {
			return mgr.GetCache().List(t.Context(), &all) == nil
		})
		if len(all.Items) != 8 {
			t.Errorf("manager %d sees %d objects", n, len(all.Items))
		}
		if fell := db.Fallbacks(); len(fell) != n || n == 1 && (fell[0].Type != "*v1.ConfigMap" || fell[0].Count != 1) {
			t.Errorf("fallbacks of %d managers: %v", n+1, fell)
		}
	}
}

// TestUnwrapped: a manager whose config was not wrapped goes on in memory. Its durable
// source then works as a stock one. A strict manager does not start, and says why.
func TestUnwrapped(t *testing.T) {
	p := newPopulation(t)
	for _, strict := range []bool{false, true} {
		db, err := boltstore.Open(filepath.Join(t.TempDir(), "cache.db"), boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		o := of(p)
		o.Cache.NewInformer = informer.ForControllerRuntime(db, informer.Options{Strict: strict})
		mgr, err := ctrl.NewManager(server(t).Config(), o)
		if err != nil {
			t.Fatal(err)
		}
		patience := time.Minute
		if strict {
			patience = time.Second
		}
		reconciled := make(chan reconcile.Request, 100)
		work := durable.NewWork("unwrapped")
		if err := ctrl.NewControllerManagedBy(mgr).Named("unwrapped").
			WithOptions(controller.Options{CacheSyncTimeout: patience}).
			WatchesRawSource(durable.For(work, mgr.GetCache(), &corev1.ConfigMap{})).
			Complete(work.Reconciler(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result,
				error) {
				reconciled <- req
				return reconcile.Result{}, nil
			}))); err != nil {
			t.Fatal(err)
		}
		end, ended := run(t, mgr)
		if strict {
			if err := <-ended; err == nil || !strings.Contains(err.Error(), "sync") {
				t.Errorf("a strict manager ends with %v", err)
			}
			if fell := db.Fallbacks(); len(fell) != 1 || !fell[0].Strict ||
				!strings.Contains(fell[0].Reason, "WrapConfig") {
				t.Errorf("fallbacks %v", fell)
			}
			continue
		}
		for range 8 {
			select {
			case <-reconciled:
			case <-time.After(time.Minute):
				t.Fatal("not all objects are reconciled")
			}
		}
		if err := end(); err != nil {
			t.Error(err)
		}
		if fell := db.Fallbacks(); len(fell) != 1 || fell[0].Strict || !strings.Contains(fell[0].Reason, "WrapConfig") {
			t.Errorf("fallbacks %v", fell)
		}
	}
}

// TestReadYourWrites: a client that waits for its own writes finds each in the cache.
func TestReadYourWrites(t *testing.T) {
	p := newPopulation(t)
	o := of(p)
	o.Client.Cache = &client.CacheOptions{EnableReadYourWritesConsistency: new(true)}
	mgr, err := durable.NewManager(server(t).Config(), o,
		durable.File{Path: filepath.Join(t.TempDir(), "cache.db"), Informers: informer.Options{Strict: true}})
	if err != nil {
		t.Fatal(err)
	}
	end, _ := run(t, mgr)
	c, ctx := mgr.GetClient(), t.Context()
	key := client.ObjectKey{Namespace: p.ns[0], Name: "mine"}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name,
		Labels: map[string]string{"test": p.mark}}}
	eventually(t, "the cache has started", func() bool {
		return mgr.GetCache().Get(ctx, key, &corev1.ConfigMap{}) != nil && mgr.GetCache().WaitForCacheSync(ctx)
	})
	if err := c.Create(ctx, cm); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		var got corev1.ConfigMap
		if err := c.Get(ctx, key, &got); err != nil || got.ResourceVersion != cm.ResourceVersion {
			t.Fatalf("write %d: %v, version %s, written %s", i, err, got.ResourceVersion, cm.ResourceVersion)
		}
		cm.Data = map[string]string{"n": strings.Repeat("n", i+1)}
		if err := c.Update(ctx, cm); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Delete(ctx, cm); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(ctx, key, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		t.Errorf("after the delete: %v", err)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

// TestNewManager: misuse is an error, and the metric counts.
func TestNewManager(t *testing.T) {
	p := newPopulation(t)
	path := filepath.Join(t.TempDir(), "cache.db")
	o := of(p)
	o.Cache.NewInformer = informer.ForControllerRuntime(nil, informer.Options{})
	if _, err := durable.NewManager(server(t).Config(), o, durable.File{Path: path}); err == nil ||
		!strings.Contains(err.Error(), "NewInformer") {
		t.Errorf("a NewInformer of the caller's: %v", err)
	}
	if _, err := durable.NewManager(server(t).Config(), of(p), durable.File{Path: t.TempDir()}); err == nil {
		t.Error("a folder is a file")
	}
	before := fallen(t)
	mgr, err := durable.NewManager(server(t).Config(), of(p),
		durable.File{Path: path, Informers: informer.Options{Transform: func(o any) (any, error) { return o, nil }}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mgr.GetCache().GetInformer(t.Context(), &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}
	if n := fallen(t) - before; n != 1 {
		t.Errorf("the metric counts %v", n)
	}
	end, _ := run(t, mgr)
	<-mgr.Elected()
	if err := end(); err != nil {
		t.Error(err)
	}
	if n := fallen(t) - before; n != 1 {
		t.Errorf("after the end the metric counts %v", n)
	}
	work := durable.NewWork("unused")
	src := durable.For(work, mgr.GetCache(), &corev1.ConfigMap{})
	if err := src.Start(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "Work.Reconciler") {
		t.Errorf("without its reconciler: %v", err)
	}
	db, err := boltstore.Open(path, boltstore.Options{LockTimeout: time.Second})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Errorf("the file is not closed: %v", err)
	}
}

// fallen sums the metric of informers that go without the file.
func fallen(t *testing.T) (n float64) {
	t.Helper()
	all, err := registry.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range all {
		if family.GetName() == "kubewake_fallback_informers_total" {
			for _, m := range family.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}
