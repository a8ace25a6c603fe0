package controllerruntime

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// TestDeleteWithoutALastState: a controller reconciles an object that was deleted while it was
// down, also if a new build's transform fails on its last known state. controller-runtime's
// handlers would drop a delete without an object, and the one that waits for the client's own
// writes would panic.
func TestDeleteWithoutALastState(t *testing.T) {
	sim := shop(t, "deleted", "stays")
	f := File{Path: filepath.Join(t.TempDir(), "test.db")}
	for life := range 2 {
		o := options()
		o.Client.Cache = &client.CacheOptions{EnableReadYourWritesConsistency: new(true)}
		o.Cache.DefaultTransform = func(obj any) (any, error) {
			if life == 1 && obj.(*corev1.ConfigMap).Name == "deleted" {
				return nil, errors.New("an older form")
			}
			return obj, nil
		}
		f.Informers.TransformVersion = string(rune('a' + life))
		mgr, err := NewManager(sim.RESTConfig(), o, f)
		if err != nil {
			t.Fatal(err)
		}
		reconciled := make(chan types.NamespacedName, 10)
		c, err := controller.NewUnmanaged("test",
			controller.Options{Reconciler: reconcile.Func(func(ctx context.Context,
				req reconcile.Request) (reconcile.Result, error) {
				reconciled <- req.NamespacedName
				return reconcile.Result{}, mgr.GetClient().Patch(ctx,
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stays"}},
					client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"`+req.Name+`"}}}`)))
			}), SkipNameValidation: new(true)})
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
		_, end := started(t, mgr)
		seen := map[string]bool{}
		eventually(t, "both are reconciled", func() bool {
			select {
			case name := <-reconciled:
				seen[name.Name] = true
			default:
			}
			return seen["deleted"] && seen["stays"]
		})
		end()
		if life == 0 {
			if err := sim.Delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
				Name: "deleted"}}); err != nil {
				t.Fatal(err)
			}
		}
	}
}
