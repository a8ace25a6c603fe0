package controllerruntime

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
)

var (
	configMaps = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	widgets    = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
)

// kinds are the kinds that caches keep side by side, each with an example object and a
// list.
var kinds = map[string]struct {
	one  func() client.Object
	list func() client.ObjectList
}{
	"typed": {func() client.Object {
		return &corev1.ConfigMap{}
	}, func() client.ObjectList { return &corev1.ConfigMapList{} }},
	"unstructured": {func() client.Object {
		return anything(configMaps)
	}, func() client.ObjectList { return list(configMaps) }},
	"metadata": {func() client.Object {
		return metadata(configMaps)
	}, func() client.ObjectList { return metadataList(configMaps) }},
	"unstructured widgets": {func() client.Object {
		return anything(widgets)
	}, func() client.ObjectList { return list(widgets) }},
	"metadata of widgets": {func() client.Object {
		return metadata(widgets)
	}, func() client.ObjectList { return metadataList(widgets) }},
	"namespaces": {func() client.Object {
		return &corev1.Namespace{}
	}, func() client.ObjectList { return &corev1.NamespaceList{} }},
}

// kept is a running cache.
type kept struct {
	cache.Cache
	t     *testing.T
	db    *boltstore.DB // nil if it is controller-runtime's own
	stop  context.CancelFunc
	ended chan struct{}

	mu   sync.Mutex
	told map[string][]string // by kind and object
}

// keep starts a cache, in the file if there is a path.
func keep(t *testing.T, path string, o cache.Options) *kept {
	t.Helper()
	k := &kept{t: t, ended: make(chan struct{}), told: map[string][]string{}}
	cfg := server(t).Config()
	if path != "" {
		var err error
		if k.db, err = boltstore.Open(path, boltstore.Options{}); err != nil {
			t.Fatal(err)
		}
		cfg = reflector.WrapConfig(cfg)
		o.NewInformer = informer.ForControllerRuntime(k.db, informer.Options{Strict: true, TransformVersion: "1"})
	}
	k.start(cfg, o)
	return k
}

func (k *kept) start(cfg *rest.Config, o cache.Options) {
	k.t.Helper()
	var err error
	if k.Cache, err = cache.New(cfg, o); err != nil {
		k.t.Fatal(err)
	}
	k.index("typed") // before the start, others after it
	ctx, stop := context.WithCancel(context.Background())
	k.stop = stop
	go func() {
		defer close(k.ended)
		if err := k.Start(ctx); err != nil {
			k.t.Error(err)
		}
	}()
	k.t.Cleanup(k.end)
	var all sync.WaitGroup
	for name, kind := range kinds {
		all.Go(func() {
			inf, err := k.GetInformer(k.t.Context(), kind.one())
			if err != nil {
				k.t.Errorf("%s: %v", name, err)
				return
			}
			if _, err := inf.AddEventHandler(k.teller(name)); err != nil {
				k.t.Error(err)
			}
			if name != "typed" {
				k.index(name)
			}
		})
	}
	all.Wait()
	if k.t.Failed() {
		k.t.FailNow()
	}
}

// index adds two field indexes.
func (k *kept) index(name string) {
	for field, value := range map[string]func(o client.Object) []string{
		"app": func(o client.Object) []string { return []string{o.GetLabels()["app"]} },
		"two": func(o client.Object) []string { return []string{o.GetName(), o.GetNamespace()} },
	} {
		if err := k.IndexField(k.t.Context(), kinds[name].one(), field, value); err != nil {
			k.t.Errorf("%s: %v", name, err)
		}
	}
}

func (k *kept) teller(kind string) toolscache.ResourceEventHandler {
	tell := func(what string, obj any) {
		if d, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		o := obj.(client.Object)
		k.mu.Lock()
		defer k.mu.Unlock()
		at := fmt.Sprintf("told of %s %s/%s", kind, o.GetNamespace(), o.GetName())
		k.told[at] = append(k.told[at], what)
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { tell("added "+o.(client.Object).GetResourceVersion(), o) },
		UpdateFunc: func(_, o any) { tell("updated "+o.(client.Object).GetResourceVersion(), o) },
		DeleteFunc: func(o any) { tell("deleted", o) },
	}
}

func (k *kept) end() {
	k.stop()
	<-k.ended
	if k.db != nil {
		if err := k.db.Close(); err != nil {
			k.t.Error(err)
		}
	}
}

// sees is everything that readers and handlers see.
func (k *kept) sees(p *population, events bool) map[string]string {
	ctx := context.Background()
	all := map[string]string{}
	for name, kind := range kinds {
		if name == "namespaces" {
			all[name+" get"] = k.get(kind.one(), client.ObjectKey{Name: p.ns[1]})
			all[name+" get with a namespace"] = k.get(kind.one(), client.ObjectKey{Namespace: "any", Name: p.ns[1]})
		}
		for what, opts := range map[string][]client.ListOption{
			"all":                      nil,
			"of a namespace":           {client.InNamespace(p.ns[0])},
			"of an unknown namespace":  {client.InNamespace("unknown")},
			"by label":                 {client.MatchingLabels{"app": "app1"}},
			"by label and namespace":   {client.MatchingLabels{"app": "app1"}, client.InNamespace(p.ns[1])},
			"by field":                 {client.MatchingFields{"app": "app1"}},
			"by field and namespace":   {client.MatchingFields{"app": "app1"}, client.InNamespace(p.ns[1])},
			"by two fields":            {client.MatchingFields{"app": "app1", "two": "o1"}},
			"by a field's other value": {client.MatchingFields{"two": p.ns[0]}},
			"by a missing index":       {client.MatchingFields{"missing": "a"}},
			"not exactly": {client.MatchingFieldsSelector{Selector: fields.OneTermNotEqualSelector("app",
				"app1")}},
			"continued":  {client.Continue("x")},
			"not copied": {client.UnsafeDisableDeepCopy},
		} {
			l := kind.list()
			err := k.List(ctx, l, opts...)
			all[name+" list "+what] = sorted(l, err)
		}
		l := kind.list()
		err := k.List(ctx, l, client.Limit(2))
		all[name+" list of two"] = fmt.Sprint(strings.Count(sorted(l, err), `"uid"`), err)
		for _, key := range []client.ObjectKey{
			{Namespace: p.ns[0], Name: "o0"}, {Namespace: p.ns[1], Name: "o3"}, {Namespace: p.ns[0], Name: "missing"},
			{Namespace: "unknown", Name: "o0"}, {Name: "o0"},
		} {
			all[fmt.Sprintf("%s get %s", name, key)] = k.get(kind.one(), key)
			o := kind.one()
			err := k.Get(ctx, key, o, client.UnsafeDisableDeepCopy)
			all[fmt.Sprintf("%s get %s, not copied", name, key)] = shown(o, err)
		}
	}
	if events {
		k.mu.Lock()
		defer k.mu.Unlock()
		for at, what := range k.told {
			all[at] = strings.Join(what, ", ")
		}
	}
	return all
}

func (k *kept) get(o client.Object, key client.ObjectKey) string {
	err := k.Get(context.Background(), key, o)
	return shown(o, err)
}

func shown(o any, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	b, err := json.Marshal(o)
	return fmt.Sprintf("%T %s %v", o, b, err)
}

// sorted returns a list with its items in order, since a stock cache does not order them.
func sorted(l client.ObjectList, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	b, err := json.Marshal(l)
	if err != nil {
		return err.Error()
	}
	var all struct{ Items []json.RawMessage }
	if err := json.Unmarshal(b, &all); err != nil {
		return err.Error()
	}
	var lines []string
	for _, i := range all.Items {
		lines = append(lines, string(i))
	}
	slices.Sort(lines)
	return fmt.Sprintf("%T %s%s\n", l, l.GetContinue(), strings.Join(lines, "\n"))
}

// same waits until two caches show the same.
func same(t *testing.T, p *population, what string, stock, ours *kept, events bool) {
	t.Helper()
	var diff string
	defer func() {
		if diff != "" {
			t.Errorf("%s: %s", what, diff)
		}
	}()
	eventually(t, what, func() bool {
		diff = ""
		want, got := stock.sees(p, events), ours.sees(p, events)
		for name := range got {
			if _, ok := want[name]; !ok {
				diff += fmt.Sprintf("\n%s\n  ours only %s", name, got[name])
			}
		}
		for name, v := range want {
			if v != got[name] {
				diff += fmt.Sprintf("\n%s\n  stock %s\n  ours  %s", name, v, got[name])
			}
		}
		return diff == ""
	})
}

// TestCaches: caches of all kinds show the same as the stock cache, object by object and
// error by error, and their handlers are told the same, through changes and a restart.
func TestCaches(t *testing.T) {
	server(t)
	app := func(p *population, v string) labels.Selector {
		return labels.SelectorFromSet(labels.Set{"test": p.mark, "app": v})
	}
	mine := func(p *population) labels.Selector { return labels.SelectorFromSet(labels.Set{"test": p.mark}) }
	for name, options := range map[string]func(p *population) cache.Options{
		"of all namespaces": func(p *population) cache.Options { return cache.Options{DefaultLabelSelector: mine(p)} },
		"of two namespaces": func(p *population) cache.Options {
			return cache.Options{DefaultLabelSelector: mine(p),
				DefaultNamespaces: map[string]cache.Config{p.ns[0]: {}, p.ns[1]: {LabelSelector: app(p, "app1")}}}
		},
		"of one namespace": func(p *population) cache.Options {
			return cache.Options{DefaultLabelSelector: mine(p), DefaultNamespaces: map[string]cache.Config{p.ns[1]: {}}}
		},
		"of one namespace and all others": func(p *population) cache.Options {
			return cache.Options{DefaultLabelSelector: mine(p),
				DefaultNamespaces: map[string]cache.Config{p.ns[0]: {LabelSelector: app(p, "app0")},
					cache.AllNamespaces: {}}}
		},
		"by selectors of a kind": func(p *population) cache.Options {
			return cache.Options{DefaultLabelSelector: mine(p), ByObject: map[client.Object]cache.ByObject{
				&corev1.ConfigMap{}: {Label: app(p, "app1")},
				anything(widgets):   {Label: app(p, "app2")},
			}}
		},
		"by fields": func(p *population) cache.Options {
			return cache.Options{DefaultLabelSelector: mine(p),
				DefaultFieldSelector: fields.OneTermEqualSelector("metadata.name", "o1")}
		},
		"by the field of a namespace": func(p *population) cache.Options {
			return cache.Options{DefaultLabelSelector: mine(p), ByObject: map[client.Object]cache.ByObject{
				&corev1.ConfigMap{}: {Field: fields.OneTermEqualSelector("metadata.namespace", p.ns[1])}}}
		},
		"transformed": func(p *population) cache.Options {
			return cache.Options{DefaultLabelSelector: mine(p), DefaultTransform: cache.TransformStripManagedFields(),
				ByObject: map[client.Object]cache.ByObject{
					anything(widgets): {Transform: func(o any) (any, error) {
						o.(client.Object).SetAnnotations(map[string]string{"seen": "yes"})
						return o, nil
					}}}}
		},
		"not copied": func(p *population) cache.Options {
			return cache.Options{DefaultLabelSelector: mine(p), DefaultUnsafeDisableDeepCopy: new(true)}
		},
		"without bookmarks": func(p *population) cache.Options {
			return cache.Options{DefaultLabelSelector: mine(p), DefaultEnableWatchBookmarks: new(false)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPopulation(t)
			path := filepath.Join(t.TempDir(), "cache.db")
			like := options(p)
			like.DefaultEnableWatchBookmarks = nil // the stock cache of 0.25 does not sync without them
			stock, ours := keep(t, "", like), keep(t, path, options(p))
			same(t, p, "at first", stock, ours, true)
			p.change(0)
			same(t, p, "after changes", stock, ours, true)
			ours.end()
			p.change(1)
			same(t, p, "after a restart", stock, keep(t, path, options(p)), false)
		})
	}
}
