package factory_test

import (
	"context"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corev1informers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/factory"
	examplev1 "github.com/kubewake/kubewake/informer/factory/testdata/example/api/example/v1"
	"github.com/kubewake/kubewake/informer/factory/testdata/example/clientset/versioned"
	"github.com/kubewake/kubewake/informer/factory/testdata/example/informers/externalversions"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/leaktest"
	"github.com/kubewake/kubewake/reflector"
)

// TestTwoLives: in its second life a program can read through the factory before starting
// it, is told the deletes that it missed, and does not list.
func TestTwoLives(t *testing.T) {
	sim := simulator(t, pod("web", "a"), pod("web", "b"), configMap("web", "c"), configMap("db", "d"))
	path := filepath.Join(t.TempDir(), "test.db")
	before := leaktest.Ours(nil)
	live := func(wantFirst []string, wantCalls ...string) {
		t.Helper()
		db := open(t, path)
		f := informers.NewSharedInformerFactory(client(sim), 0)
		o := informer.Options{Reflector: reflector.Options{Confirm: reflector.ConfirmBookmark}}
		err := factory.Wake(f, db, factory.Options{Informer: o}, &corev1.Pod{}, &corev1.ConfigMap{})
		if err != nil {
			t.Fatal(err)
		}
		pods := f.Core().V1().Pods()
		if got, err := pods.Lister().Pods("web").List(labels.Everything()); err != nil ||
			!slices.Equal(names(got), wantFirst) {
			t.Errorf("before the start: %v, %v, want %v", names(got), err, wantFirst)
		}
		generic, err := f.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps"))
		if err != nil {
			t.Fatal(err)
		}
		told := &calls{}
		for _, inf := range []cache.SharedIndexInformer{pods.Informer(), generic.Informer()} {
			if _, err := inf.AddEventHandler(told); err != nil {
				t.Fatal(err)
			}
		}
		nodes := f.Core().V1().Nodes().Informer() // is not woken
		ctx, stop := context.WithCancel(t.Context())
		f.StartWithContext(ctx)
		synced := f.WaitForCacheSync(ctx.Done())
		want := map[reflect.Type]bool{reflect.TypeFor[*corev1.Pod](): true,
			reflect.TypeFor[*corev1.ConfigMap](): true, reflect.TypeFor[*corev1.Node](): true}
		if !reflect.DeepEqual(synced, want) {
			t.Errorf("synced: %v", synced)
		}
		if got, err := generic.Lister().ByNamespace("db").Get("d"); err != nil || got.(*corev1.ConfigMap).Name != "d" {
			t.Errorf("%v, %v", got, err)
		}
		if len(nodes.GetStore().List()) != 0 {
			t.Error("there are nodes")
		}
		for _, call := range wantCalls {
			eventually(t, call, func() bool { return slices.Contains(told.sorted(), call) })
		}
		stop()
		f.Shutdown()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
	live(nil, "add *v1.Pod web/a", "add *v1.Pod web/b", "add *v1.ConfigMap web/c", "add *v1.ConfigMap db/d")
	if err := sim.Delete(pod("web", "a")); err != nil {
		t.Fatal(err)
	}
	if err := sim.Delete(configMap("web", "c")); err != nil {
		t.Fatal(err)
	}
	sim.ResetRequests()
	live([]string{"web/a", "web/b"}, "delete *v1.Pod web/a", "add *v1.Pod web/b", "delete *v1.ConfigMap web/c",
		"add *v1.ConfigMap db/d")
	for _, r := range sim.Requests() {
		if r.FullRead() && r.Resource != "nodes" {
			t.Errorf("the second life lists all %s", r.Resource)
		}
	}
	leaktest.None(t, "after both lives", before)
}

// TestSources: a factory's restrictions of its lists are part of the source.
func TestSources(t *testing.T) {
	sim := simulator(t)
	typed := client(sim)
	apps := func(o *metav1.ListOptions) { o.LabelSelector = "app=shop" }
	fields := func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=a" }
	for _, tc := range []struct {
		name string
		f    informers.SharedInformerFactory
		want []string // of config maps, nodes and deployments
	}{
		{"all", informers.NewSharedInformerFactory(typed, 0),
			[]string{"configmaps/v1", "deployments.apps/v1", "nodes/v1"}},
		{"namespace", informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithNamespace("web")),
			[]string{"configmaps/v1 -n web", "deployments.apps/v1 -n web", "nodes/v1"}},
		{"labels", informers.NewSharedInformerFactoryWithOptions(typed, 0, informers.WithTweakListOptions(apps)),
			[]string{"configmaps/v1 -l app=shop", "deployments.apps/v1 -l app=shop", "nodes/v1 -l app=shop"}},
		{"namespace and field", informers.NewSharedInformerFactoryWithOptions(typed, 0,
			informers.WithNamespace("web"), informers.WithTweakListOptions(fields)),
			[]string{"configmaps/v1 -n web --field-selector metadata.name=a",
				"deployments.apps/v1 -n web --field-selector metadata.name=a",
				"nodes/v1 --field-selector metadata.name=a"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			db := temporary(t)
			if err := factory.Wake(tc.f, db, factory.Options{}, &corev1.ConfigMap{}, &corev1.Node{},
				&appsv1.Deployment{}); err != nil {
				t.Fatal(err)
			}
			if got := sources(t, db); !slices.Equal(got, tc.want) {
				t.Errorf("sources %q, want %q", got, tc.want)
			}
		})
	}
}

// TestIndexAndTypedInformer: a woken informer has the index by namespace and those of the
// options, and is typed like any of the factory's.
func TestIndexAndTypedInformer(t *testing.T) {
	sim := simulator(t, configMap("web", "a"), configMap("db", "b"))
	f := informers.NewSharedInformerFactory(client(sim), 0)
	o := factory.Options{Informer: informer.Options{Indexers: cache.Indexers{"name": func(o any) ([]string, error) {
		return []string{o.(*corev1.ConfigMap).Name}, nil
	}}, IndexVersions: map[string]string{"name": "1"}}}
	if err := factory.Wake(f, temporary(t), o, &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Shutdown)
	maps := corev1informers.ToTypedConfigMapInformer(f.Core().V1().ConfigMaps()).TypedInformer()
	added := make(chan string, 2)
	_, err := maps.AddTypedEventHandler(cache.TypedResourceEventHandlerFuncs[*corev1.ConfigMap]{
		AddFunc: func(m *corev1.ConfigMap) { added <- m.Name }})
	if err != nil {
		t.Fatal(err)
	}
	f.StartWithContext(t.Context())
	f.WaitForCacheSync(t.Context().Done())
	got := []string{<-added, <-added}
	if slices.Sort(got); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("added %q", got)
	}
	for index, value := range map[string]string{cache.NamespaceIndex: "web", "name": "a"} {
		objs, err := maps.GetIndexer().ByIndex(index, value)
		if err != nil || len(objs) != 1 {
			t.Errorf("%s: %v, %v", index, objs, err)
		}
	}
}

// TestIndexFunctionAsksTheFactory: while a type wakes, the program's functions may for
// example ask the factory for another type, and do not wait for Wake.
func TestIndexFunctionAsksTheFactory(t *testing.T) {
	sim := simulator(t, configMap("web", "a"))
	path := filepath.Join(t.TempDir(), "test.db")
	for _, version := range []string{"1", "2"} { // the second life indexes what the file has
		db := open(t, path)
		f := informers.NewSharedInformerFactory(client(sim), 0)
		o := factory.Options{Informer: informer.Options{Indexers: cache.Indexers{"node": func(any) ([]string, error) {
			f.Core().V1().Nodes().Lister()
			return []string{"none"}, nil
		}}, IndexVersions: map[string]string{"node": version}}}
		woken := make(chan error, 1)
		go func() { woken <- factory.Wake(f, db, o, &corev1.ConfigMap{}) }()
		select {
		case err := <-woken:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("Wake waits for the index function, which waits for Wake")
		}
		ctx, stop := context.WithCancel(t.Context())
		f.StartWithContext(ctx)
		f.WaitForCacheSync(ctx.Done())
		stop()
		f.Shutdown()
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAskedMeanwhile: a type that is asked for while it wakes stays in memory, and its
// source is free.
func TestAskedMeanwhile(t *testing.T) {
	sim := simulator(t, configMap("web", "a"))
	db := temporary(t)
	wake := func(version string, meanwhile func(f informers.SharedInformerFactory)) (informers.SharedInformerFactory,
		error) {
		f := informers.NewSharedInformerFactory(client(sim), 0)
		none := func(any) ([]string, error) {
			meanwhile(f)
			return nil, nil
		}
		return f, factory.Wake(f, db, factory.Options{Informer: informer.Options{Indexers: cache.Indexers{"none": none},
			IndexVersions: map[string]string{"none": version}}}, &corev1.ConfigMap{})
	}
	live := func(version string) {
		t.Helper()
		f, err := wake(version, func(informers.SharedInformerFactory) {})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		f.StartWithContext(ctx)
		f.WaitForCacheSync(ctx.Done())
		stop()
		f.Shutdown()
	}
	live("1")
	f, err := wake("2", func(f informers.SharedInformerFactory) { f.Core().V1().ConfigMaps().Informer() })
	if err == nil {
		t.Error("it woke")
	}
	if _, err := factory.Informer(f, &corev1.ConfigMap{}); err == nil {
		t.Error("it has an informer over the file")
	}
	live("2")
}

// TestFiltered: the lists and watches of a filtered factory are filtered, as with
// client-go's.
func TestFiltered(t *testing.T) {
	sim := simulator(t, configMap("web", "a", "app", "shop"), configMap("web", "b"),
		configMap("db", "c", "app", "shop"))
	tweak := func(o *metav1.ListOptions) { o.LabelSelector = "app=shop" }
	both(t, sim, func(t *testing.T, wake func(informers.SharedInformerFactory)) (log []string) {
		f := informers.NewSharedInformerFactoryWithOptions(client(sim), 0, informers.WithNamespace("web"),
			informers.WithTweakListOptions(tweak))
		wake(f)
		told := &calls{}
		maps := f.Core().V1().ConfigMaps()
		if _, err := maps.Informer().AddEventHandler(told); err != nil {
			t.Fatal(err)
		}
		f.StartWithContext(t.Context())
		f.WaitForCacheSync(t.Context().Done())
		for _, o := range []kubesim.Object{configMap("web", "d", "app", "shop"), configMap("web", "e"),
			configMap("db", "f", "app", "shop")} {
			if err := sim.Create(o); err != nil {
				t.Fatal(err)
			}
			defer func() { // the next case begins without it
				if err := sim.Delete(o); err != nil {
					t.Error(err)
				}
			}()
		}
		eventually(t, "the new one", func() bool {
			_, err := maps.Lister().ConfigMaps("web").Get("d")
			return err == nil
		})
		got, err := maps.Lister().List(labels.Everything())
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "all calls", func() bool { return len(told.sorted()) == 2 })
		return append(names(got), told.sorted()...)
	})
}

// both runs a program over a stock factory and over one that wakes config maps, and
// compares its observations.
func both(
	t *testing.T, _ *kubesim.Server, program func(t *testing.T, wake func(informers.SharedInformerFactory)) []string,
) {
	t.Helper()
	var stock []string
	t.Run("stock", func(t *testing.T) { stock = program(t, func(informers.SharedInformerFactory) {}) })
	t.Run("woken", func(t *testing.T) {
		db := temporary(t)
		got := program(t, func(f informers.SharedInformerFactory) {
			t.Cleanup(f.Shutdown) // after t.Context has ended, before the file is closed
			if err := factory.Wake(f, db, factory.Options{Informer: informer.Options{TransformVersion: "1"}},
				&corev1.ConfigMap{}); err != nil {
				t.Fatal(err)
			}
		})
		if !slices.Equal(got, stock) {
			t.Errorf("client-go: %q\nwoken: %q", stock, got)
		}
	})
}

// TestFactoryOptions: transform, name and resync periods of a factory apply to woken
// informers as to its own.
func TestFactoryOptions(t *testing.T) {
	sim := simulator(t, configMap("web", "a"))
	t.Run("transform", func(t *testing.T) {
		both(t, sim, func(t *testing.T, wake func(informers.SharedInformerFactory)) []string {
			f := informers.NewSharedInformerFactoryWithOptions(client(sim), 0,
				informers.WithTransform(func(o any) (any, error) {
					if m, ok := o.(*corev1.ConfigMap); ok {
						m.Labels = map[string]string{"seen": "yes"}
					}
					return o, nil
				}))
			wake(f)
			lister := f.Core().V1().ConfigMaps().Lister()
			f.StartWithContext(t.Context())
			f.WaitForCacheSync(t.Context().Done())
			got, err := lister.List(labels.SelectorFromSet(labels.Set{"seen": "yes"}))
			if err != nil {
				t.Fatal(err)
			}
			return names(got)
		})
	})
	for name, option := range map[string]informers.SharedInformerOption{
		"default resync": nil,
		"custom resync": informers.WithCustomResyncConfig(map[metav1.Object]time.Duration{
			&corev1.ConfigMap{}: time.Second}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			both(t, sim, func(t *testing.T, wake func(informers.SharedInformerFactory)) []string {
				f := informers.NewSharedInformerFactory(client(sim), time.Second)
				if option != nil {
					f = informers.NewSharedInformerFactoryWithOptions(client(sim), time.Hour, option)
				}
				wake(f)
				told := &calls{}
				if _, err := f.Core().V1().ConfigMaps().Informer().AddEventHandler(told); err != nil {
					t.Fatal(err)
				}
				f.StartWithContext(t.Context())
				eventually(t, "a resync", func() bool { return len(told.sorted()) >= 2 })
				return told.sorted()[:2]
			})
		})
	}
	t.Run("name", func(t *testing.T) {
		both(t, sim, func(t *testing.T, wake func(informers.SharedInformerFactory)) []string {
			name, err := cache.NewInformerName(t.Name())
			if err != nil {
				t.Fatal(err)
			}
			f := informers.NewSharedInformerFactoryWithOptions(client(sim), 0, informers.WithInformerName(name))
			wake(f)
			f.Core().V1().ConfigMaps().Informer()
			f.Shutdown()
			again, err := cache.NewInformerName(t.Name()) // it was released
			if err != nil {
				t.Error(err)
			}
			defer again.Release()
			return []string{f.InformerName().Name()[:len("TestFactoryOptions/")]}
		})
	})
}

// TestOtherProject: the factory of another project wakes, too: nothing depends on the
// types that code-generator has made for client-go.
func TestOtherProject(t *testing.T) {
	sim := simulator(t, widget("web", "a", 1), widget("db", "b", 2))
	widgets := versioned.NewForConfigOrDie(wrapped(sim))
	db := temporary(t)
	f := externalversions.NewSharedInformerFactoryWithOptions(widgets, 0, externalversions.WithNamespace("web"),
		externalversions.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = "!hidden" }))
	if err := factory.Wake(f, db, factory.Options{}, &examplev1.Widget{}); err != nil {
		t.Fatal(err)
	}
	if got, want := sources(t, db), []string{"widgets.example.com/v1 -n web -l !hidden"}; !slices.Equal(got, want) {
		t.Errorf("sources %q, want %q", got, want)
	}
	lister := f.Example().V1().Widgets().Lister()
	ctx, stop := context.WithCancel(t.Context())
	f.StartWithContext(ctx)
	if err := f.WaitForCacheSyncWithContext(ctx).AsError(); err != nil {
		t.Fatal(err)
	}
	w, err := lister.Widgets("web").Get("a")
	if err != nil || w.Size != 1 {
		t.Errorf("%+v, %v", w, err)
	}
	all, err := lister.List(labels.Everything())
	if got := names(all); err != nil || !slices.Equal(got, []string{"web/a"}) {
		t.Errorf("%q, %v", got, err)
	}
	stop()
	f.Shutdown()
}

// TestInformer: the informer over the file can be got, with all its methods.
func TestInformer(t *testing.T) {
	sim := simulator(t)
	f := informers.NewSharedInformerFactory(client(sim), 0)
	if _, err := factory.Informer(f, &corev1.Pod{}); err == nil {
		t.Error("a type that was not woken has an informer over the file")
	}
	if err := factory.Wake(f, temporary(t), factory.Options{}, &corev1.Pod{}); err != nil {
		t.Fatal("a look for an informer makes none:", err)
	}
	inf, err := factory.Informer(f, &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	if got := inf.Store().Source().String(); got != "pods/v1" {
		t.Errorf("its source is %s", got)
	}
	f.Core().V1().Nodes().Informer()
	if _, err := factory.Informer(f, &corev1.Node{}); err == nil {
		t.Error("an informer of client-go is over the file")
	}
}
