package informer

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/reflector"
)

// TestHandlerThatExits: a plain handler that ends its goroutine, as t.FailNow does, is
// removed. It holds up neither other handlers nor the end, and the next life is told the
// delete that it has missed.
func TestHandlerThatExits(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	h := newRecorder(t)
	l := w.live(Options{}, h)
	reg, err := l.inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { runtime.Goexit() }})
	if err != nil {
		t.Fatal(err)
	}
	l.run().synced()
	<-reg.(*listener).ShutdownChan()
	eventually(t, "removed", func() bool {
		l.inf.mu.Lock()
		defer l.inf.mu.Unlock()
		return len(l.inf.listeners) == 1 && len(l.inf.absent) == 1
	})
	l.replayed()
	w.delete("a")
	h.expect("initial a", "delete a")
	if reg.HasSynced() {
		t.Error("it has not been told all objects")
	}
	l.end()
	next := newRecorder(t)
	w.live(Options{}, next).run().synced()
	next.expect("delete a")
}

// TestDurableHandlerThatExits: a call that ends its goroutine has failed, and is made
// again.
func TestDurableHandlerThatExits(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.create("b")
	h := newLedger(t)
	l := w.live(Options{})
	var calls atomic.Int32
	_, err := l.inf.AddDurableHandler("test", DurableHandlerFunc(func(ctx context.Context, e Event) error {
		if calls.Add(1) <= 20 { // more than there are workers
			runtime.Goexit()
		}
		return h.HandleEvent(ctx, e)
	}), DurableOptions{RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Millisecond,
		10*time.Millisecond)})
	if err != nil {
		t.Fatal(err)
	}
	l.run().synced().acknowledged()
	h.expect("reset", "initial a", "initial b")
	w.update("a", "1")
	l.equal().acknowledged()
	h.expect("update a")
	l.end()
}

// TestListFunctionThatExits: a list or watch function that ends its goroutine has
// failed, and is called again.
func TestListFunctionThatExits(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.create("a")
		inner := cache.ToListerWatcherWithContext(listWatch(w.config()))
		var lists, watches atomic.Int32
		lw := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (kruntime.Object, error) {
				if lists.Add(1)%2 == 1 {
					runtime.Goexit()
				}
				return inner.ListWithContext(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				if watches.Add(1)%2 == 1 {
					runtime.Goexit()
				}
				return inner.WatchWithContext(ctx, o)
			},
		}
		db, err := boltstore.Open(w.path, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		inf, err := NewSharedIndexInformer(db, lw, &corev1.ConfigMap{},
			Options{Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps",
				Form: boltstore.FormTyped}}})
		if err != nil {
			t.Fatal(err)
		}
		l := (&life{world: w, db: db, inf: inf, done: make(chan struct{})}).run().synced()
		w.create("b")
		l.equal()
		l.end()
	})
}

// TestFunctionsThatExit: a transform or index function that ends its goroutine, for an
// object of a list or of the watch, has failed, and is called again.
func TestFunctionsThatExit(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.create("b")
	var transforms, indexes atomic.Int32
	l := w.live(Options{
		TransformVersion: "1",
		Transform: func(obj any) (any, error) {
			if transforms.Add(1)%2 == 1 {
				runtime.Goexit()
			}
			return obj, nil
		},
		Indexers: cache.Indexers{"names": func(obj any) ([]string, error) {
			if indexes.Add(1)%2 == 1 {
				runtime.Goexit()
			}
			return []string{obj.(*corev1.ConfigMap).Name}, nil
		}},
		Reflector: tuned(tuning.Reflector{RetryUnstored: time.Millisecond}),
	}).run().synced().equal()
	w.create("c")
	w.create("d")
	w.update("a", "1")
	w.delete("b")
	l.equal()
	for _, name := range []string{"a", "c", "d"} {
		eventually(t, "indexed: "+name, func() bool {
			objs, err := l.inf.GetIndexer().ByIndex("names", name)
			return err == nil && len(objs) == 1
		})
	}
	if n, _ := l.inf.queue.Failed(); n == 0 {
		t.Error("no failure is shown")
	}
	l.end()
}
