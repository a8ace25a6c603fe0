package informer

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/sealtest"
	"github.com/kubewake/kubewake/reflector"
)

// managed is a file, and informers that are made as a manager makes them.
type managed struct {
	*world
	db *boltstore.DB

	mu   sync.Mutex
	said []string // to the file's logger
}

func (w *world) managed() *managed {
	w.t.Helper()
	m := &managed{world: w}
	log := klog.Logger(funcr.New(func(_, args string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.said = append(m.said, args)
	}, funcr.Options{}))
	o := w.options
	o.Logger, o.Keyset = &log, sealtest.Default()
	var err error
	if m.db, err = boltstore.Open(w.path, o); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		if err := m.db.Close(); err != nil {
			w.t.Error(err)
		}
	})
	return m
}

func (m *managed) errors(what string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range m.said {
		if strings.Contains(l, what) {
			n++
		}
	}
	return n
}

// like makes a ListWatch with only the two functions that controller-runtime sets.
func like[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error),
	open func(context.Context, metav1.ListOptions) (watch.Interface, error)) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.AllowWatchBookmarks = true
			return open(ctx, o)
		},
	}
}

func typedMaps(cfg *rest.Config, ns string) cache.ListerWatcher {
	c := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps(ns)
	return like(c.List, c.Watch)
}

// start runs an informer until the test, or the returned function, ends it.
func start(t *testing.T, inf cache.SharedIndexInformer) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); inf.RunWithContext(ctx) }()
	end = func() { cancel(); <-done }
	t.Cleanup(end)
	return end
}

var byNamespace = cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}

// TestForControllerRuntime: the lists of one kind, as objects, unstructured and metadata,
// of one namespace and of all, are side by side in the file, and the next life reads them
// before any request.
func TestForControllerRuntime(t *testing.T) {
	w := newWorld(t)
	w.create("a", "1")
	w.create("b", "2")
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(gvk)
	resource := corev1.SchemeGroupVersion.WithResource("configmaps")
	life := func(before int) {
		m := w.managed()
		cfg := w.config()
		make := ForControllerRuntime(m.db, Options{})
		dyn, meta := dynamic.NewForConfigOrDie(cfg).Resource(resource),
			metadata.NewForConfigOrDie(cfg).Resource(resource)
		var ends []func()
		for name, c := range map[string]struct {
			lw      cache.ListerWatcher
			example runtime.Object
		}{
			"typed":        {typedMaps(cfg, ""), &corev1.ConfigMap{}},
			"namespace":    {typedMaps(cfg, "default"), &corev1.ConfigMap{}},
			"unstructured": {like(dyn.List, dyn.Watch), u},
			"metadata":     {like(meta.List, meta.Watch), partial},
		} {
			inf, ok := make(c.lw, c.example, 0, byNamespace).(*Informer)
			if !ok {
				t.Fatalf("%s is not kept in the file: %v", name, m.db.Fallbacks())
			}
			if n := len(inf.GetStore().List()); n != before {
				t.Errorf("%s: %d objects before any request", name, n)
			}
			ends = append(ends, start(t, inf))
			eventually(t, name+" synced", inf.HasSynced)
			if err := inf.AddIndexers(cache.Indexers{"field:name": func(o any) ([]string, error) {
				return []string{"__all_namespaces/" + o.(metav1.Object).GetName()}, nil
			}}); err != nil {
				t.Fatal(err)
			}
			got, err := inf.GetIndexer().ByIndex("field:name", "__all_namespaces/b")
			if err != nil || len(got) != 1 || fmt.Sprintf("%T", got[0]) != fmt.Sprintf("%T", c.example) {
				t.Errorf("%s: by a field %v %v", name, got, err)
			}
		}
		for _, end := range ends {
			end()
		}
		if err := m.db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	life(0)
	life(2)
}

// TestFallback: a list that the file cannot keep is kept in memory, which is logged
// once and counted, or never syncs if it must not be.
func TestFallback(t *testing.T) {
	for name, c := range map[string]struct {
		o      Options
		lw     func(m *managed) cache.ListerWatcher
		reason string
	}{
		"the config was not wrapped": {
			lw:     func(m *managed) cache.ListerWatcher { return typedMaps(m.sim.RESTConfig(), "") },
			reason: "ctrl.NewManager(reflector.WrapConfig(cfg), …)",
		},
		"the config was wrapped too late": {
			lw: func(m *managed) cache.ListerWatcher {
				cfg := m.sim.RESTConfig()
				defer reflector.WrapConfig(cfg)
				return typedMaps(cfg, "")
			},
			reason: "WrapConfig",
		},
		"another cache has the list": {
			lw: func(m *managed) cache.ListerWatcher {
				if _, err := NewSharedIndexInformer(m.db, typedMaps(m.config(), ""), &corev1.ConfigMap{},
					Options{}); err != nil {
					t.Fatal(err)
				}
				return typedMaps(m.config(), "")
			},
			reason: "share one informer",
		},
		"the file is closed": {
			lw: func(m *managed) cache.ListerWatcher {
				if err := m.db.Close(); err != nil {
					t.Fatal(err)
				}
				return typedMaps(m.config(), "")
			},
			reason: "closed",
		},
		"a source for all lists": {
			o: Options{Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1",
				Resource: "configmaps"}}},
			lw:     func(m *managed) cache.ListerWatcher { return typedMaps(m.config(), "") },
			reason: "Options.Reflector.Source names one list",
		},
		"a transform for all lists": {
			o:      Options{Transform: func(o any) (any, error) { return o, nil }},
			lw:     func(m *managed) cache.ListerWatcher { return typedMaps(m.config(), "") },
			reason: "sets the transform",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.create("a")
			m := w.managed()
			inf := ForControllerRuntime(m.db, c.o)(c.lw(m), &corev1.ConfigMap{}, 0, byNamespace)
			if _, ok := inf.(*Informer); ok {
				t.Fatal("it is in the file")
			}
			start(t, inf)
			eventually(t, "synced", inf.HasSynced)
			if got, err := inf.GetIndexer().ByIndex(cache.NamespaceIndex, "default"); err != nil || len(got) != 1 {
				t.Error(got, err)
			}
			m.fell(t, c.reason, false)
		})
		t.Run(name+", strict", func(t *testing.T) {
			w := newWorld(t)
			w.create("a")
			m := w.managed()
			var states []reflector.State
			c.o.Strict, c.o.Reflector.OnState = true, func(s reflector.State) { states = append(states, s) }
			inf := ForControllerRuntime(m.db, c.o)(c.lw(m), &corev1.ConfigMap{}, 0, byNamespace)
			failed := make(chan error, 100)
			if err := inf.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
				failed <- err
			}); err != nil {
				t.Fatal(err)
			}
			end := start(t, inf)
			if err := <-failed; !strings.Contains(err.Error(), c.reason) {
				t.Errorf("the watch error handler got %v", err)
			}
			if inf.HasSynced() {
				t.Error("it has synced")
			}
			if s := inf.(interface{ State() reflector.State }).State(); s.Phase != reflector.PhaseUnclaimed ||
				!strings.Contains(s.Reason, c.reason) {
				t.Errorf("its state is %v", s)
			}
			if len(states) != 1 || states[0].Phase != reflector.PhaseUnclaimed {
				t.Errorf("states %v", states)
			}
			end()
			if !inf.IsStopped() || inf.HasSynced() || len(inf.GetStore().List()) != 0 {
				t.Error("it is not over")
			}
			m.fell(t, c.reason, true)
		})
	}
}

// TestFallbackHasTheOptions: the indices and the resync period of the options are there
// in memory, too.
func TestFallbackHasTheOptions(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	m := w.managed()
	o := Options{ResyncPeriod: time.Second, Indexers: cache.Indexers{"name": func(obj any) ([]string, error) {
		return []string{obj.(metav1.Object).GetName()}, nil
	}}}
	inf := ForControllerRuntime(m.db, o)(typedMaps(m.sim.RESTConfig(), ""), &corev1.ConfigMap{}, 0, byNamespace)
	if _, ok := inf.(*Informer); ok {
		t.Fatal("it is in the file")
	}
	resynced := make(chan struct{})
	var once sync.Once
	_, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, _ any) {
		once.Do(func() { close(resynced) })
	}})
	if err != nil {
		t.Fatal(err)
	}
	start(t, inf)
	eventually(t, "synced", inf.HasSynced)
	for name, value := range map[string]string{"name": "a", cache.NamespaceIndex: "default"} {
		if got, err := inf.GetIndexer().ByIndex(name, value); err != nil || len(got) != 1 {
			t.Errorf("%s: %v %v", name, got, err)
		}
	}
	select {
	case <-resynced:
	case <-time.After(time.Minute):
		t.Error("no resync")
	}
}

func (m *managed) fell(t *testing.T, reason string, strict bool) {
	t.Helper()
	all := m.db.Fallbacks()
	if len(all) != 1 || all[0].Type != "*v1.ConfigMap" || !strings.Contains(all[0].Reason, reason) ||
		all[0].Strict != strict || all[0].Count != 1 || all[0].Last.IsZero() {
		t.Errorf("fallbacks %+v", all)
	}
	what := "in memory only"
	if strict {
		what = "will not sync"
	}
	if n := m.errors(what); n != 1 {
		t.Errorf("%d lines in the log: %q", n, m.said)
	}
}

// TestExampleIsTheCallers: the caller of a cache may write into the object that it gave,
// while the informer runs.
func TestExampleIsTheCallers(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	m := w.managed()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	dyn := dynamic.NewForConfigOrDie(w.config()).Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	inf := ForControllerRuntime(m.db, Options{})(like(dyn.List, dyn.Watch), u, 0, byNamespace)
	u.SetKind("Other")
	end := start(t, inf)
	for i := range 100 {
		u.SetKind(fmt.Sprint(i))
	}
	eventually(t, "synced", inf.HasSynced)
	end()
	if got := inf.(*Informer).Store().Source(); got.Form != boltstore.FormUnstructured {
		t.Error(got)
	}
}
