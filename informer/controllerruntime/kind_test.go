package controllerruntime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/waittest"
	"github.com/kubewake/kubewake/reflector"
)

// shop is a server with config maps.
func shop(t *testing.T, names ...string) *kubesim.Server {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	for _, name := range names {
		if err := sim.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	return sim
}

// running is a cache over a file, in which the sources of works run.
type running struct {
	t     *testing.T
	db    *boltstore.DB
	cache cache.Cache
	ctx   context.Context
	end   func()

	reconciled *atomic.Int32 // calls of reconcilers that have returned: their events are acknowledged
}

func run(t *testing.T, sim *kubesim.Server, path string) *running {
	t.Helper()
	db, err := boltstore.Open(path, boltstore.Options{Window: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	cfg := sim.RESTConfig()
	cfg.QPS = -1
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"ConfigMap", "Secret"} {
		mapper.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	c, err := cache.New(reflector.WrapConfig(cfg),
		cache.Options{Mapper: mapper, NewInformer: informer.ForControllerRuntime(db, informer.Options{Strict: true})})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Start(ctx) }()
	r := &running{t: t, db: db, cache: c, ctx: ctx, reconciled: new(atomic.Int32)}
	r.end = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-done, db.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.end)
	return r
}

// controller reconciles the requests of the work's source, until the cache ends.
func (r *running) controller(w *Work, obj client.Object, f reconcile.Func) error {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	context.AfterFunc(r.ctx, q.ShutDown)
	rec := w.Reconciler(f)
	k := For(w, r.cache, obj)
	if err := k.Start(r.ctx, q); err != nil {
		return err
	}
	go func() {
		for {
			req, shutdown := q.Get()
			if shutdown {
				return
			}
			_, err := rec.Reconcile(r.ctx, req)
			r.reconciled.Add(1)
			if err != nil {
				q.AddRateLimited(req)
			}
			q.Done(req)
		}
	}()
	return k.WaitForSync(r.ctx)
}

// story is the sequence of events, in order.
type story struct {
	mu   sync.Mutex
	said []string
}

func (l *story) say(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.said = append(l.said, s)
}

func (l *story) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.said, " ")
}

var eventually = waittest.Eventually

// TestReset: if the file has lost what the work had been told, the program gets a Reset
// before it is told every object, until it has noted it. Objects without any trace are
// not reconciled. A new name begins with a Reset, too. There is none for a file that has lost
// nothing.
func TestReset(t *testing.T) {
	sim := shop(t, "a", "b")
	path := filepath.Join(t.TempDir(), "test.db")
	for life, want := range []string{"failed reset a b", "c", "failed reset b c"} {
		switch life {
		case 1:
			if err := sim.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
				Name: "c"}}); err != nil {
				t.Fatal(err)
			}
		case 2:
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			if err := sim.Delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
				Name: "a"}}); err != nil {
				t.Fatal(err)
			}
		}
		var said story
		failed := false
		w := NewWork("test")
		w.OnReset(func(context.Context) error {
			if !failed {
				failed = true
				said.say("failed")
				return errors.New("in a test")
			}
			said.say("reset")
			return nil
		})
		var calls atomic.Int32
		r := run(t, sim, path)
		if err := r.controller(w, &corev1.ConfigMap{},
			func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				calls.Add(1)
				said.say(req.Name)
				return reconcile.Result{}, nil
			}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "told", func() bool {
			return len(said.String()) >= len(want) && r.reconciled.Load() >= calls.Load()
		})
		r.end()
		if said.String() != want {
			t.Errorf("life %d: %q, want %q", life, said.String(), want)
		}
	}
}

// TestOneController: a Work whose source runs in one controller is refused to another
// one, which would take the first one's work as finished. It can be used again
// afterwards.
func TestOneController(t *testing.T) {
	sim := shop(t)
	w := NewWork("test")
	for range 2 {
		r := run(t, sim, filepath.Join(t.TempDir(), "test.db"))
		quiet := func(context.Context, reconcile.Request) (reconcile.Result, error) { return reconcile.Result{}, nil }
		if err := r.controller(w, &corev1.ConfigMap{}, quiet); err != nil {
			t.Fatal(err)
		}
		if err := r.controller(w, &corev1.Secret{}, quiet); err == nil ||
			!strings.Contains(err.Error(), "one controller") {
			t.Errorf("the second controller: %v", err)
		}
		r.end()
	}
}
