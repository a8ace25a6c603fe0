package generic_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	stockdynamic "k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	stockmetadata "k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/dynamicinformer"
	"github.com/kubewake/kubewake/informer/metadatainformer"
	"github.com/kubewake/kubewake/internal/filetest"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/leaktest"
	"github.com/kubewake/kubewake/internal/waittest"
	"github.com/kubewake/kubewake/reflector"
)

var (
	widgets    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	nodes      = corev1.SchemeGroupVersion.WithResource("nodes")
)

// factory is what both kinds of factories, client-go's and ours, can do.
type factory interface {
	Start(<-chan struct{})
	ForResource(schema.GroupVersionResource) informers.GenericInformer
	WaitForCacheSync(<-chan struct{}) map[schema.GroupVersionResource]bool
	Shutdown()
}

// filter restricts a factory's lists.
type filter struct {
	namespace string
	tweak     func(*metav1.ListOptions)
}

// kind makes factories of one kind, which are all over clients of one server.
type kind struct {
	name  string
	stock func(*rest.Config, filter) factory
	ours  func(*rest.Config, filter, *boltstore.DB, informer.Options) (factory, error)
}

var kinds = []kind{
	{"dynamic", func(c *rest.Config, f filter) factory {
		return stockdynamic.NewFilteredDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(c), 0, f.namespace,
			f.tweak)
	}, func(c *rest.Config, f filter, db *boltstore.DB, o informer.Options) (factory, error) {
		return dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(c), 0, f.namespace,
			f.tweak, db, o)
	}},
	{"metadata", func(c *rest.Config, f filter) factory {
		return stockmetadata.NewFilteredSharedInformerFactory(metadata.NewForConfigOrDie(c), 0, f.namespace, f.tweak)
	}, func(c *rest.Config, f filter, db *boltstore.DB, o informer.Options) (factory, error) {
		return metadatainformer.NewFilteredSharedInformerFactory(metadata.NewForConfigOrDie(c), 0, f.namespace,
			f.tweak, db, o)
	}},
}

func simulator(t *testing.T) *kubesim.Server {
	t.Helper()
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	for _, o := range []kubesim.Object{widget("web", "a"), widget("web", "b"), widget("db", "c"),
		configMap("web", "d"), configMap("db", "e")} {
		if err := sim.Create(o); err != nil {
			t.Fatal(err)
		}
	}
	return sim
}

func widget(namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": namespace, "name": name, "labels": map[string]any{"in": namespace}}}}
}

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{"in": namespace}}}
}

func config(sim *kubesim.Server) *rest.Config {
	cfg := sim.RESTConfig()
	cfg.QPS = -1
	return reflector.WrapConfig(cfg)
}

func open(t *testing.T, path string) *boltstore.DB {
	return filetest.OpenAt(t, path, boltstore.Options{Durability: boltstore.DurabilityProcess})
}

func temporary(t *testing.T) *boltstore.DB { return open(t, filepath.Join(t.TempDir(), "test.db")) }

// calls are the calls of a handler.
type calls struct {
	mu   sync.Mutex
	told []string
}

func (c *calls) note(what string, obj any) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, what+" "+shown(obj))
}

func (c *calls) OnAdd(obj any, _ bool)   { c.note("add", obj) }
func (c *calls) OnUpdate(_, updated any) { c.note("update", updated) }
func (c *calls) OnDelete(obj any)        { c.note("delete", obj) }

func (c *calls) sorted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.told))
}

// shown names an object, with the type and kind that it came as.
func shown(obj any) string {
	m, err := meta.Accessor(obj)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%T %v %s/%s", obj, obj.(runtime.Object).GetObjectKind().GroupVersionKind(), m.GetNamespace(),
		m.GetName())
}

var eventually = waittest.Eventually

// both runs a program over client-go's factory and over ours, and compares the output.
func both(
	t *testing.T, sim *kubesim.Server, f filter, program func(t *testing.T, f factory, say func(string, ...any)),
) {
	t.Helper()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			said := map[string][]string{}
			run := func(name string, f factory) {
				t.Run(name, func(t *testing.T) {
					program(t, f, func(format string, args ...any) {
						said[name] = append(said[name], fmt.Sprintf(format, args...))
					})
				})
			}
			run("stock", k.stock(config(sim), f))
			ours, err := k.ours(config(sim), f, temporary(t), informer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			run("ours", ours)
			if !slices.Equal(said["stock"], said["ours"]) {
				t.Errorf("client-go:\n\t%s\nours:\n\t%s", strings.Join(said["stock"], "\n\t"),
					strings.Join(said["ours"], "\n\t"))
			}
		})
	}
}

// TestAsClientGo: the factories behave as client-go's do.
func TestAsClientGo(t *testing.T) {
	sim := simulator(t)
	before := leaktest.Ours(nil)
	both(t, sim, filter{}, func(t *testing.T, f factory, say func(string, ...any)) {
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		w := f.ForResource(widgets)
		told := &calls{}
		if _, err := w.Informer().AddEventHandler(told); err != nil {
			t.Fatal(err)
		}
		say("same informer: %v, started: %v", f.ForResource(widgets).Informer() == w.Informer(),
			f.WaitForCacheSync(ctx.Done()))
		f.Start(ctx.Done())
		maps := f.ForResource(configMaps) // needs another Start
		say("synced: %v", f.WaitForCacheSync(ctx.Done()))
		say("late one: %v", maps.Informer().HasSynced())
		f.Start(ctx.Done())
		f.Start(ctx.Done())
		say("synced: %v", f.WaitForCacheSync(ctx.Done()))

		list := func(what string, objs []runtime.Object, err error) {
			var names []string
			for _, o := range objs {
				names = append(names, shown(o))
			}
			slices.Sort(names)
			say("%s: %q %v", what, names, err)
		}
		objs, err := w.Lister().List(labels.Everything())
		list("all", objs, err)
		objs, err = w.Lister().List(labels.SelectorFromSet(labels.Set{"in": "db"}))
		list("selected", objs, err)
		objs, err = maps.Lister().ByNamespace("web").List(labels.Everything())
		list("namespace", objs, err)
		obj, err := maps.Lister().ByNamespace("web").Get("d")
		say("get: %s %v", shown(obj), err)
		_, err = maps.Lister().ByNamespace("web").Get("none")
		say("no get: %v", err)
		_, err = maps.Lister().Get("none")
		say("no get: %v", err)

		eventually(t, "the first ones", func() bool { return len(told.sorted()) == 3 })
		if err := sim.Create(widget("web", "new")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the new one", func() bool {
			_, err := w.Lister().ByNamespace("web").Get("new")
			return err == nil
		})
		if err := sim.Delete(widget("web", "new")); err != nil {
			t.Fatal(err)
		}
		eventually(t, "its delete", func() bool { return len(told.sorted()) == 5 })
		say("told: %q", told.sorted())

		other := f.ForResource(nodes) // never started
		stop()
		f.Shutdown()
		f.Shutdown()
		f.Start(context.Background().Done())
		say("stopped: %v %v %v", w.Informer().IsStopped(), maps.Informer().IsStopped(), other.Informer().IsStopped())
		say("synced: %v", f.WaitForCacheSync(ctx.Done()))
	})
	leaktest.None(t, "after the factories", before)
}

// TestFilteredAsClientGo: filtered factories list and watch the same as client-go's do.
func TestFilteredAsClientGo(t *testing.T) {
	sim := simulator(t)
	for name, f := range map[string]filter{
		"namespace": {namespace: "web"},
		"labels":    {tweak: func(o *metav1.ListOptions) { o.LabelSelector = "in=web" }},
		"both":      {namespace: "web", tweak: func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=a" }},
	} {
		t.Run(name, func(t *testing.T) {
			both(t, sim, f, func(t *testing.T, f factory, say func(string, ...any)) {
				ctx, stop := context.WithCancel(context.Background())
				told := &calls{}
				w := f.ForResource(widgets)
				if _, err := w.Informer().AddEventHandler(told); err != nil {
					t.Fatal(err)
				}
				f.Start(ctx.Done())
				say("%v", f.WaitForCacheSync(ctx.Done()))
				objs, err := w.Lister().List(labels.Everything())
				say("%d %v", len(objs), err)
				eventually(t, "calls", func() bool { return len(told.sorted()) >= len(objs) })
				say("%q", told.sorted())
				stop()
				f.Shutdown()
			})
		})
	}
}
