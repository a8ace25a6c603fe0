package controllerruntime

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// TestControllerAgain: a controller that has ended can begin again while the cache goes
// on, as a stock one can. It goes on where the first one was. As long as the first one
// runs, a second one of the name is refused.
func TestControllerAgain(t *testing.T) {
	for name, again := range map[string]func(w *Work) *Work{
		"the same work": func(w *Work) *Work { return w },
		"its name":      func(*Work) *Work { return NewWork("test") },
	} {
		t.Run(name, func(t *testing.T) {
			sim := shop(t, "a", "b")
			r := run(t, sim, filepath.Join(t.TempDir(), "test.db"))
			var said story
			reconciler := func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				said.say(req.Name)
				return reconcile.Result{}, nil
			}
			w := NewWork("test")
			for _, next := range []string{"b", "c", "d", "e"} {
				if next > "b" {
					if err := sim.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
						Name: next}}); err != nil {
						t.Fatal(err)
					}
				}
				ctx, end := context.WithCancel(r.ctx)
				defer end()
				shorter := *r
				shorter.ctx = ctx
				if err := shorter.controller(w, &corev1.ConfigMap{}, reconciler); err != nil {
					t.Fatalf("%s: %v", next, err)
				}
				eventually(t, next, func() bool { return strings.Contains(said.String(), next) })
				beside := NewWork("test")
				beside.Reconciler(reconcile.Func(reconciler))
				k := For(beside, r.cache, &corev1.ConfigMap{})
				limiter := workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()
				if err := k.Start(r.ctx, workqueue.NewTypedRateLimitingQueue(limiter)); err != nil {
					t.Fatal(err)
				}
				if err := k.WaitForSync(r.ctx); err == nil || !strings.Contains(err.Error(), "a Work of its own") {
					t.Errorf("beside a running one: %v", err)
				}
				end()
				w = again(w)
			}
			if n := strings.Count(said.String(), "a"); n != 1 { // it was done before b
				t.Errorf("it starts over: %s", said.String())
			}
		})
	}
}
