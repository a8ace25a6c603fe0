package controllerruntime_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/controllerruntime"
)

// A manager keeps its cache in a file, and its probes report the cache's state. Its
// controllers stay as they are.
func ExampleNewManager() {
	run := func(ctx context.Context, cfg *rest.Config) error { // of ctrl.GetConfig
		mgr, err := controllerruntime.NewManager(cfg, manager.Options{HealthProbeBindAddress: ":8081"},
			controllerruntime.File{Path: "/cache/operator/cache.db"})
		if err != nil {
			return err
		}
		if err := mgr.AddReadyzCheck("cache", informer.Ready(controllerruntime.FileOf(mgr), 0)); err != nil {
			return err
		}
		if err := mgr.AddHealthzCheck("cache", informer.Live(controllerruntime.FileOf(mgr))); err != nil {
			return err
		}
		return mgr.Start(ctx) // closes the file
	}
	_ = run // it needs a server
}

// A controller's open work is kept in the file until Reconcile has succeeded. After a
// restart the controller reconciles it, and the changes since then, deletes included.
func ExampleFor() {
	run := func(ctx context.Context, mgr manager.Manager) error { // of NewManager
		shop := reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
			var cm corev1.ConfigMap
			err := mgr.GetClient().Get(ctx, req.NamespacedName, &cm)
			if client.IgnoreNotFound(err) != nil {
				return reconcile.Result{}, err
			}
			fmt.Println(req, "is there:", err == nil)
			return reconcile.Result{}, nil
		})
		work := controllerruntime.NewWork("shop")
		work.OnReset(func(context.Context) error {
			fmt.Println("deletes may have been missed; every object follows")
			return nil
		})
		err := builder.ControllerManagedBy(mgr).
			Named("shop").
			WatchesRawSource(controllerruntime.For(work, mgr.GetCache(), &corev1.ConfigMap{})).
			Complete(work.Reconciler(shop))
		if err != nil {
			return err
		}
		return mgr.Start(ctx)
	}
	_ = run // it needs a server
}

// Secrets stay out of the file. The manager lists them at each start, as a stock one does.
func ExampleFile() {
	run := func(ctx context.Context, cfg *rest.Config) error { // of ctrl.GetConfig
		mgr, err := controllerruntime.NewManager(cfg, manager.Options{}, controllerruntime.File{
			Path:     "/cache/operator/cache.db",
			InMemory: []client.Object{&corev1.Secret{}},
		})
		if err != nil {
			return err
		}
		return mgr.Start(ctx)
	}
	_ = run // it needs a server
}
