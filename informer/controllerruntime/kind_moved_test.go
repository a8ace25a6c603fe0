package controllerruntime

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestMovedObject: an object led to a request that is reconciled from time to time, and
// now leads to another one. Its changes are still told: the first request keeps its event
// for the next life.
func TestMovedObject(t *testing.T) {
	sim := shop(t)
	owned := func(owner string, n int) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a",
			Labels: map[string]string{"owner": owner, "n": fmt.Sprint(n)}}}
	}
	if err := sim.Create(owned("x", 0)); err != nil {
		t.Fatal(err)
	}
	r := run(t, sim, filepath.Join(t.TempDir(), "test.db"))
	w := NewWork("test")
	reconciled := make(chan string, 1000)
	rec := w.Reconciler(reconcile.Func(func(_ context.Context, req reconcile.Request) (res reconcile.Result, _ error) {
		if req.Name == "x" {
			res.RequeueAfter = time.Hour
		}
		reconciled <- req.Name
		return res, nil
	}))
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	k := Kind(w, r.cache, &corev1.ConfigMap{},
		handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, cm *corev1.ConfigMap) []reconcile.Request {
			return []reconcile.Request{request(cm.Labels["owner"])}
		}))
	if err := k.Start(r.ctx, q); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			req, shutdown := q.Get()
			if shutdown {
				return
			}
			if _, err := rec.Reconcile(r.ctx, req); err != nil {
				t.Error(err)
			}
			q.Done(req)
		}
	}()
	until := func(what, name string) {
		t.Helper()
		end := time.After(time.Minute)
		for {
			select {
			case got := <-reconciled:
				if got == name {
					return
				}
			case <-end:
				t.Fatal("not reconciled: " + what)
			}
		}
	}
	until("x", "x")
	for n := range 40 {
		if err := sim.Update(owned("y", n)); err != nil {
			t.Fatal(err)
		}
		until(fmt.Sprint("change ", n), "y")
	}
}
