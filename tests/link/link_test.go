// Package link tests the library on a real API server behind links that fail
// and with rights that come and go.
package link

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/tuning"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/apiserver"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	widgets    = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	crds       = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	// kinds are the kinds of the types that every server here has.
	kinds = map[schema.GroupVersionResource]string{configMaps: "ConfigMap", widgets: "Widget"}
)

func kindOf(gvr schema.GroupVersionResource) schema.GroupVersionKind {
	if gvr == gadgets {
		return gvr.GroupVersion().WithKind("Gadget")
	}
	return gvr.GroupVersion().WithKind(kinds[gvr])
}

func TestLinks(t *testing.T) {
	s := apiserver.Start(t, apiserver.Options{Users: []string{apiserver.Restricted}})
	type link struct {
		name string
		test func(*world)
	}
	run := func(links ...link) {
		for _, l := range links {
			t.Run(l.name, func(t *testing.T) { l.test(newWorld(t, s)) })
		}
	}
	var beside sync.WaitGroup
	beside.Go(func() { run(link{"a connection that is open and dead", halfOpen}) }) // it waits for most of a minute
	run(
		link{"rights that go and come", rights},
		link{"a type that is deleted and comes back", typeComesBack},
		link{"a slow link that breaks, and a server that forgets", slow},
		link{"a link with latency", latency},
		link{"connections that are reset", resets},
		link{"a first list that is interrupted", takenUp},
		link{"a caller who wants to be sure", fresh},
	)
	beside.Wait() // what follows disturbs the whole server
	run(
		link{"a server that restarts", restarts},
		link{"a server that restarts, metadata first", restartsMetadata},
		link{"a schema that changes", reformed},
		link{"another cluster at the same address", recreated},
	)
}

// world is a namespace of the server behind a link.
type world struct {
	*testing.T
	s      *apiserver.Server
	link   *proxy
	direct dynamic.Interface
	ns     string
	proofs int // pages that asked counted last
}

func newWorld(t *testing.T, s *apiserver.Server) *world {
	w := &world{T: t, s: s, ns: "default"}
	var err error
	if w.link, err = newProxy(strings.TrimPrefix(s.Config().Host, "https://")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.link.close)
	if w.direct, err = dynamic.NewForConfig(s.Config()); err != nil {
		t.Fatal(err)
	}
	return w
}

// namespace makes one, to work in.
func (w *world) namespace(name string) {
	w.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": name}}}
	if _, err := w.direct.Resource(schema.GroupVersionResource{Version: "v1",
		Resource: "namespaces"}).Create(w.Context(), o, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.ns = name
}

func (w *world) create(gvr schema.GroupVersionResource, name, data string) string {
	w.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"data": data}}}
	o.SetGroupVersionKind(kindOf(gvr))
	o.SetName(name)
	o, err := w.direct.Resource(gvr).Namespace(w.ns).Create(w.Context(), o, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return o.GetResourceVersion()
}

func (w *world) update(gvr schema.GroupVersionResource, name, data string) {
	w.Helper()
	patch := fmt.Appendf(nil, `{"data":{"data":%q}}`, data)
	if _, err := w.direct.Resource(gvr).Namespace(w.ns).Patch(w.Context(), name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) delete(gvr schema.GroupVersionResource, name string) {
	w.Helper()
	if err := w.direct.Resource(gvr).Namespace(w.ns).Delete(w.Context(), name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
}

// mirror is an informer behind the link, with the calls of its handler.
type mirror struct {
	*world
	gvr     schema.GroupVersionResource
	inf     *informer.Informer
	end     func()
	decoded atomic.Int64 // objects in lists, as the client has them

	mu   sync.Mutex
	told []string
	last map[string]string // version of each object that was told last
}

func (w *world) mirror(gvr schema.GroupVersionResource, user string, o informer.Options) *mirror {
	w.Helper()
	return w.mirrorAt(filepath.Join(w.TempDir(), "test.db"), gvr, user, o)
}

// mirrorAt keeps its objects in the file at path.
func (w *world) mirrorAt(path string, gvr schema.GroupVersionResource, user string, o informer.Options) *mirror {
	w.Helper()
	cfg := w.s.ConfigFor(user)
	cfg.Host = "https://" + w.link.addr()
	cfg.UserAgent = strings.ReplaceAll(w.Name(), " ", "_")
	cfg.Proxy = nil
	c, err := dynamic.NewForConfig(reflector.WrapConfig(rest.CopyConfig(cfg)))
	if err != nil {
		w.Fatal(err)
	}
	client := c.Resource(gvr).Namespace(w.ns)
	example := &unstructured.Unstructured{}
	example.SetGroupVersionKind(kindOf(gvr))
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		w.Fatal(err)
	}
	m := &mirror{world: w, gvr: gvr, last: map[string]string{}}
	m.inf, err = informer.NewSharedIndexInformer(db, &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, o)
			if err == nil {
				m.decoded.Add(int64(len(list.Items)))
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Watch(ctx, o)
		},
	}, example, o)
	if err != nil {
		w.Fatal(err)
	}
	note := func(what string, obj any) {
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		o, err := meta.Accessor(obj)
		if err != nil {
			w.Error(err)
			return
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.told = append(m.told, what+o.GetName())
		m.last[o.GetName()] = o.GetResourceVersion()
	}
	_, err = m.inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { note("+", o) },
		UpdateFunc: func(_, o any) { note("~", o) },
		DeleteFunc: func(o any) { note("-", o) },
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); m.inf.RunWithContext(ctx) }()
	m.end = sync.OnceFunc(func() {
		cancel()
		<-done
		if err := db.Close(); err != nil {
			w.Error(err)
		}
	})
	w.Cleanup(m.end)
	return m
}

// expect waits until exactly these changes have been told, of names with a prefix.
func (m *mirror) expect(prefix string, want ...string) {
	m.Helper()
	var got []string
	slices.Sort(want)
	m.until(2*time.Minute, func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, s := range m.told {
			if strings.HasPrefix(s[1:], prefix) {
				got = append(got, s)
			}
		}
		m.told = nil
		slices.Sort(got)
		return slices.Equal(got, want)
	}, func() string { return fmt.Sprintf("told %q, want %q, %s", got, want, m.inf.State()) })
}

// forget forgets what the handler was told, once it was told of all objects that the cache
// has. The cache has an object before the handler is told of it.
func (m *mirror) forget() {
	m.Helper()
	missing := ""
	m.until(time.Minute, func() bool {
		objs := m.inf.GetStore().List()
		m.mu.Lock()
		defer m.mu.Unlock()
		missing = ""
		for _, o := range objs {
			if u := o.(*unstructured.Unstructured); m.last[u.GetName()] != u.GetResourceVersion() {
				missing = u.GetName()
			}
		}
		if missing == "" {
			m.told = nil
		}
		return missing == ""
	}, func() string { return "not told of " + missing })
}

func (m *mirror) phase(p reflector.Phase) {
	m.Helper()
	m.until(2*time.Minute, func() bool { return m.inf.State().Phase == p },
		func() string { return fmt.Sprintf("%s, not %s", m.inf.State(), p) })
}

func (w *world) until(limit time.Duration, cond func() bool, why func() string) {
	w.Helper()
	deadline := time.After(limit)
	for tick := time.NewTicker(10 * time.Millisecond); !cond(); {
		select {
		case <-tick.C:
		case <-deadline:
			w.Fatal(why())
		}
	}
}

// equal waits until the cache equals the server.
func (m *mirror) equal() {
	m.Helper()
	list, err := m.direct.Resource(m.gvr).Namespace(m.ns).List(m.Context(), metav1.ListOptions{})
	if err != nil {
		m.Fatal(err)
	}
	want := map[string]string{}
	for _, o := range list.Items {
		want[o.GetName()] = string(o.GetUID()) + o.GetResourceVersion()
	}
	var got map[string]string
	m.until(time.Minute, func() bool {
		got = map[string]string{}
		for _, o := range m.inf.GetStore().List() {
			u := o.(*unstructured.Unstructured)
			got[u.GetName()] = string(u.GetUID()) + u.GetResourceVersion()
		}
		return maps.Equal(got, want)
	}, func() string { return fmt.Sprintf("%d objects, want %d; %s", len(got), len(want), m.inf.State()) })
}

func rights(w *world) {
	may := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"},
		Verbs: []string{"get", "list", "watch"}}
	if err := w.s.Grant(w.Context(), apiserver.Restricted, may); err != nil {
		w.Fatal(err)
	}
	w.create(configMaps, "rights1", "")
	m := w.mirror(configMaps, apiserver.Restricted, informer.Options{})
	m.expect("rights", "+rights1")
	if err := w.s.Grant(w.Context(), apiserver.Restricted); err != nil {
		w.Fatal(err)
	}
	w.link.drop()
	m.phase(reflector.PhaseDenied)
	w.create(configMaps, "rights2", "")
	if _, ok, _ := m.inf.GetStore().GetByKey("default/rights1"); !ok {
		w.Error("not kept")
	}
	if err := w.s.Grant(w.Context(), apiserver.Restricted, may); err != nil {
		w.Fatal(err)
	}
	m.expect("rights", "+rights2")
	m.phase(reflector.PhaseLive)
	m.equal()
}

func typeComesBack(w *world) {
	if err := w.s.InstallWidgets(w.Context()); err != nil {
		w.Fatal(err)
	}
	w.create(widgets, "one", "")
	w.create(widgets, "two", "")
	m := w.mirror(widgets, apiserver.Admin, informer.Options{})
	m.expect("", "+one", "+two")
	w.link.refuse(true) // the deletes are missed
	if err := w.direct.Resource(crds).Delete(w.Context(), "widgets.example.com", metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	w.until(time.Minute, func() bool {
		_, err := w.direct.Resource(widgets).List(w.Context(), metav1.ListOptions{})
		return err != nil
	}, func() string { return "the type is still there" })
	w.link.refuse(false)
	m.phase(reflector.PhaseDenied)
	if n := len(m.inf.GetStore().ListKeys()); n != 2 {
		w.Errorf("%d objects kept", n)
	}
	if err := w.s.InstallWidgets(w.Context()); err != nil {
		w.Fatal(err)
	}
	w.create(widgets, "two", "")
	m.expect("", "-one", "-two", "+two")
	m.phase(reflector.PhaseLive)
	m.equal()
}

// halfOpen: over HTTP/2 the transport's pings notice it, within 45 s; a new watch would
// use the same connection.
func halfOpen(w *world) {
	w.namespace("half-open") // of its own: others change objects meanwhile
	m := w.mirror(configMaps, apiserver.Admin, informer.Options{})
	m.phase(reflector.PhaseLive)
	w.link.freeze()
	began := time.Now()
	w.create(configMaps, "frozen", "")
	m.expect("frozen", "+frozen")
	w.Logf("noticed after %s", time.Since(began).Round(time.Second))
	m.phase(reflector.PhaseLive)
	m.equal()
}

// tuned are internal options.
func tuned(t tuning.Reflector) (o reflector.Options) {
	tuning.SetReflector(&o, t)
	return o
}
