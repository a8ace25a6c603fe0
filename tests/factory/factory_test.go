// Package factory wakes the factories of programs on a real API server, beside
// client-go's own.
package factory

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	stockdynamic "k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	stockmetadata "k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/dynamicinformer"
	"github.com/kubewake/kubewake/informer/factory"
	examplev1 "github.com/kubewake/kubewake/informer/factory/testdata/example/api/example/v1"
	"github.com/kubewake/kubewake/informer/factory/testdata/example/clientset/versioned"
	"github.com/kubewake/kubewake/informer/factory/testdata/example/informers/externalversions"
	"github.com/kubewake/kubewake/informer/metadatainformer"
	"github.com/kubewake/kubewake/informer/metrics"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/apiserver"
)

var (
	configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")
	widgets    = examplev1.SchemeGroupVersion.WithResource("widgets")
)

// selected restricts each factory here to some objects of a namespace.
func selected(o *metav1.ListOptions) { o.LabelSelector = "in=shop" }

// running is a factory of any kind.
type running struct {
	informer func(schema.GroupVersionResource) (informers.GenericInformer, error)
	start    func(context.Context)
	shutdown func()
}

// kind makes factories of one kind for a namespace: client-go's without a file.
type kind struct {
	name string
	gvr  schema.GroupVersionResource
	make func(cfg *rest.Config, namespace string, db *boltstore.DB) (running, error)
}

var kinds = []kind{
	{"generated", configMaps, func(cfg *rest.Config, ns string, db *boltstore.DB) (running, error) {
		f := informers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(cfg), 0,
			informers.WithNamespace(ns), informers.WithTweakListOptions(selected))
		r := running{f.ForResource, f.StartWithContext, f.Shutdown}
		if db == nil {
			return r, nil
		}
		return r, factory.Wake(f, db, factory.Options{Informer: byBookmark}, &corev1.ConfigMap{})
	}},
	{"another project's", widgets, func(cfg *rest.Config, ns string, db *boltstore.DB) (running, error) {
		f := externalversions.NewSharedInformerFactoryWithOptions(versioned.NewForConfigOrDie(cfg), 0,
			externalversions.WithNamespace(ns), externalversions.WithTweakListOptions(selected))
		r := running{func(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
			return f.ForResource(gvr)
		}, f.StartWithContext, f.Shutdown}
		if db == nil {
			return r, nil
		}
		return r, factory.Wake(f, db, factory.Options{Informer: byBookmark}, &examplev1.Widget{})
	}},
	{"dynamic", widgets, func(cfg *rest.Config, ns string, db *boltstore.DB) (running, error) {
		client := dynamic.NewForConfigOrDie(cfg)
		if db == nil {
			return untyped(stockdynamic.NewFilteredDynamicSharedInformerFactory(client, 0, ns, selected)), nil
		}
		f, err := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, ns, selected, db, byBookmark)
		return untyped(f), err
	}},
	{"metadata", configMaps, func(cfg *rest.Config, ns string, db *boltstore.DB) (running, error) {
		client := metadata.NewForConfigOrDie(cfg)
		if db == nil {
			return untyped(stockmetadata.NewFilteredSharedInformerFactory(client, 0, ns, selected)), nil
		}
		f, err := metadatainformer.NewFilteredSharedInformerFactory(client, 0, ns, selected, db, byBookmark)
		return untyped(f), err
	}},
}

func untyped(f dynamicinformer.DynamicSharedInformerFactory) running {
	return running{
		func(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
			return f.ForResource(gvr), nil
		},
		func(ctx context.Context) { f.Start(ctx.Done()) }, f.Shutdown,
	}
}

// TestFactories: a factory of each kind has, in two lives, the same objects as
// client-go's.
func TestFactories(t *testing.T) {
	s := apiserver.Start(t, apiserver.Options{})
	if err := s.InstallWidgets(t.Context()); err != nil {
		t.Fatal(err)
	}
	direct := dynamic.NewForConfigOrDie(s.Config())
	for _, ns := range []string{"web", "db"} {
		if _, err := direct.Resource(corev1.SchemeGroupVersion.WithResource("namespaces")).Create(t.Context(),
			object("v1", "Namespace", "", ns, ""), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create := func(ns, name, in string) {
		t.Helper()
		for gvr, o := range map[schema.GroupVersionResource]*unstructured.Unstructured{configMaps: object("v1",
			"ConfigMap", ns, name, in), widgets: object("example.com/v1", "Widget", ns, name, in)} {
			if _, err := direct.Resource(gvr).Namespace(ns).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	create("web", "a", "shop")
	create("web", "b", "shop")
	create("web", "other", "stock")
	create("db", "c", "shop")

	path := filepath.Join(t.TempDir(), "factory.db")
	live := func(cfg *rest.Config, first []string, wants ...string) (unconfirmed int) {
		t.Helper()
		db, err := boltstore.Open(path, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var ended sync.WaitGroup
		for _, k := range kinds {
			stock, err := k.make(s.Config(), "web", nil)
			if err != nil {
				t.Fatal(err)
			}
			ours, err := k.make(cfg, "web", db)
			if err != nil {
				t.Fatal(k.name, err)
			}
			told := &calls{}
			var listed [][]string
			for i, f := range []running{stock, ours} {
				inf, err := f.informer(k.gvr)
				if err != nil {
					t.Fatal(err)
				}
				if i == 1 {
					if got := list(t, inf); !slices.Equal(names(got), first) {
						t.Errorf("%s: before the start it has %q, want %q", k.name, got, first)
					}
					if _, err := inf.Informer().AddEventHandler(told); err != nil {
						t.Fatal(err)
					}
				}
				f.start(ctx)
				ended.Go(func() { <-ctx.Done(); f.shutdown() })
				if !cache.WaitFor(ctx, "", inf.Informer().HasSyncedChecker()) {
					t.Fatal(k.name)
				}
				listed = append(listed, list(t, inf))
			}
			if !slices.Equal(listed[0], listed[1]) {
				t.Errorf("%s: client-go has %q, the woken one %q", k.name, listed[0], listed[1])
			}
			for _, want := range wants {
				told.await(t, k.name, want)
			}
		}
		unconfirmed = relists(t, db, reflector.ReasonUnconfirmed)
		stop()
		ended.Wait()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
		return unconfirmed
	}
	config := func(agent string) *rest.Config {
		cfg := rest.CopyConfig(s.Config())
		cfg.UserAgent, cfg.QPS = agent, -1
		return reflector.WrapConfig(cfg)
	}
	live(config("first"), nil, "add web/a", "add web/b")

	for _, gvr := range []schema.GroupVersionResource{configMaps, widgets} {
		if err := direct.Resource(gvr).Namespace("web").Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("web", "d", "shop")
	create("db", "e", "shop")
	began := time.Now()
	unconfirmed := live(config("second"), []string{"web/a", "web/b"}, "delete web/a", "add web/d")
	all, err := s.Requests(began)
	if err != nil {
		t.Fatal(err)
	}
	mine := all.UserAgent("second")
	if len(mine) < len(kinds) {
		t.Errorf("the server noted only %d requests of the second life", len(mine))
	}
	// A server that has too little of a processor may send no bookmark for three watches. One
	// list then confirms in its place.
	if lists := mine.FullReads(); len(lists) != unconfirmed {
		for _, r := range lists {
			t.Errorf("the second life lists, and %d lists were for want of a bookmark: %s", unconfirmed, r.URI)
		}
	}
	for _, r := range mine {
		if r.Verb == "watch" && !(strings.Contains(r.URI, "/namespaces/web/") &&
			strings.Contains(r.URI, "labelSelector=in%3Dshop")) {
			t.Errorf("the second life watches more than it was asked for: %s", r.URI)
		}
	}
}

// relists is how often all sources of a file have been read for a reason.
func relists(t *testing.T, db *boltstore.DB, reason string) (n int) {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(metrics.NewCollector(db))
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, f := range families {
		if f.GetName() != "kubewake_source_relists_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "reason" && l.GetValue() == reason {
					found = true
					n += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	if !found {
		t.Fatalf("no metric counts lists for %q", reason)
	}
	return n
}

func object(apiVersion, kind, namespace, name, in string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind,
		"metadata": map[string]any{"namespace": namespace, "name": name, "labels": map[string]any{"in": in}}}}
}

// byBookmark allows only lists for missed changes: a list that proves that nothing was
// missed would count as one of them.
var byBookmark = informer.Options{Reflector: reflector.Options{Confirm: reflector.ConfirmBookmark}}

// calls are the calls of a handler.
type calls struct {
	mu   sync.Mutex
	told []string
}

func (c *calls) note(what string, obj any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		key = err.Error()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, what+" "+key)
}

func (c *calls) OnAdd(obj any, _ bool)   { c.note("add", obj) }
func (c *calls) OnUpdate(_, updated any) { c.note("update", updated) }
func (c *calls) OnDelete(obj any)        { c.note("delete", obj) }

func (c *calls) await(t *testing.T, who, want string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		c.mu.Lock()
		got := slices.Clone(c.told)
		c.mu.Unlock()
		if slices.Contains(got, want) {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: told %q, not %q", who, got, want)
		}
	}
}

// list returns key, type and version of each object that the lister has, and the kind of
// those that are of no Go type of their own. client-go leaves the kind of typed custom
// resources as it comes, which differs between lists and streamed lists.
func list(t *testing.T, inf informers.GenericInformer) (all []string) {
	t.Helper()
	objs, err := inf.Lister().ByNamespace("web").List(labels.Everything())
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objs {
		m, err := meta.Accessor(o)
		if err != nil {
			t.Fatal(err)
		}
		kind := o.GetObjectKind().GroupVersionKind()
		if _, ok := o.(*examplev1.Widget); ok {
			kind = schema.GroupVersionKind{}
		}
		all = append(all, fmt.Sprintf("%s/%s %T %v %s", m.GetNamespace(), m.GetName(), o, kind, m.GetResourceVersion()))
	}
	slices.Sort(all)
	return all
}

// names returns the keys in the result of list.
func names(listed []string) (all []string) {
	for _, l := range listed {
		name, _, _ := strings.Cut(l, " ")
		all = append(all, name)
	}
	return all
}
