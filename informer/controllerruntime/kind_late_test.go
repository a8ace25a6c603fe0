package controllerruntime

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestControllerAfterATimeout: a controller whose cache does not sync in time ends with an
// error. Its work can begin again at once, as that of a stock source can, whether or not its
// context has ended.
func TestControllerAfterATimeout(t *testing.T) {
	sim := shop(t, "a")
	if err := sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	r := run(t, sim, filepath.Join(t.TempDir(), "test.db"))
	w := NewWork("test")
	var said story
	reconciler := func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
		said.say(req.Name)
		return reconcile.Result{}, nil
	}
	for range 2 {
		w.Reconciler(reconcile.Func(reconciler))
		k := For(w, r.cache, &corev1.ConfigMap{})
		limiter := workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()
		if err := k.Start(r.ctx, workqueue.NewTypedRateLimitingQueue(limiter)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(r.ctx, 100*time.Millisecond)
		if err := k.WaitForSync(ctx); err == nil || !strings.Contains(err.Error(), "timed out") {
			t.Errorf("it waits for the cache: %v", err)
		}
		cancel()
	}
	if err := sim.RefuseConnections(false); err != nil {
		t.Fatal(err)
	}
	if err := r.controller(w, &corev1.ConfigMap{}, reconciler); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a", func() bool { return strings.Contains(said.String(), "a") })
}
