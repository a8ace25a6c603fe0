package controllerruntime

import (
	"context"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// TestCommitsOfAFirstStart: in a manager's first life a small type takes four commits: its
// claim, a note of the server, its list, and a note of its handler, which comes after the
// list. On a disk that
// syncs slowly, more would hold up a manager of many types. The second life takes none.
func TestCommitsOfAFirstStart(t *testing.T) {
	sim := shop(t, "a", "b")
	f := File{Path: filepath.Join(t.TempDir(), "test.db")}
	for life, most := range []int{4, 0} {
		mgr, err := NewManager(sim.RESTConfig(), manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}}, f)
		if err != nil {
			t.Fatal(err)
		}
		reconciled := make(chan string, 10)
		c, err := controller.NewUnmanaged("test", controller.Options{SkipNameValidation: new(true),
			Reconciler: reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				reconciled <- req.Name
				return reconcile.Result{}, nil
			})})
		if err == nil {
			err = c.Watch(source.Kind(mgr.GetCache(), client.Object(&corev1.ConfigMap{}),
				&handler.EnqueueRequestForObject{}))
		}
		if err == nil {
			err = mgr.Add(c)
		}
		if err != nil {
			t.Fatal(err)
		}
		before := FileOf(mgr).Stats().Transactions.Count()
		_, end := started(t, mgr)
		<-reconciled
		<-reconciled
		if n := int(FileOf(mgr).Stats().Transactions.Count() - before); n > most {
			t.Errorf("life %d: %d commits", life, n)
		}
		end()
	}
}
