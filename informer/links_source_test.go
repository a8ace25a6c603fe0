package informer

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/reflector"
)

// linked is a source of TestLinksAtRandom.
type linked struct {
	name       string
	server     kubesim.Object // of the server's type
	kind       runtime.Object // of the informer's type
	ns         string
	selected   bool // by a label
	standalone bool // a stock informer reads the file
	lw         func(cfg *rest.Config) cache.ListerWatcher

	sim   *kubesim.Server
	began time.Time
	h1    bool // over HTTP/1.1
	inf   linkedInformer

	mu             sync.Mutex
	there, durable map[string]string // version of each object, as handlers were told
	faults, log    []string
}

type linkedInformer interface {
	cache.SharedIndexInformer
	State() reflector.State
	WaitForFresh(ctx context.Context, maxAge time.Duration) error
}

// standaloneInformer is a stock informer over a Standalone.
type standaloneInformer struct {
	cache.SharedIndexInformer
	*reflector.Standalone
}

func (i standaloneInformer) RunWithContext(ctx context.Context) {
	i.SharedIndexInformer.RunWithContext(ctx)
	if err := i.Close(); err != nil {
		panic(err)
	}
}

func linkedWidget(ns, name, n string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"namespace": ns, "name": name},
		"n": n,
	}}
}

func linkedSources() []*linked {
	of := func(o runtime.Object, kind schema.GroupVersionKind) runtime.Object {
		o.GetObjectKind().SetGroupVersionKind(kind)
		return o
	}
	core := func(cfg *rest.Config) rest.Interface { return kubernetes.NewForConfigOrDie(cfg).CoreV1().RESTClient() }
	configMap := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	configMaps := corev1.SchemeGroupVersion.WithResource("configmaps")
	widgets := schema.GroupVersion{Group: "example.com", Version: "v1"}
	return []*linked{
		{name: "typed", server: &corev1.ConfigMap{}, kind: &corev1.ConfigMap{},
			lw: func(cfg *rest.Config) cache.ListerWatcher {
				return cache.NewListWatchFromClient(core(cfg), "configmaps", "", fields.Everything())
			}},
		{name: "protobuf", server: &corev1.Secret{}, kind: &corev1.Secret{}, ns: "web",
			lw: func(cfg *rest.Config) cache.ListerWatcher {
				cfg = rest.CopyConfig(cfg)
				cfg.ContentType = "application/vnd.kubernetes.protobuf"
				return cache.NewListWatchFromClient(core(cfg), "secrets", "web", fields.Everything())
			}},
		{name: "selected", server: &corev1.Secret{}, kind: &corev1.Secret{}, selected: true,
			lw: func(cfg *rest.Config) cache.ListerWatcher {
				return cache.NewFilteredListWatchFromClient(core(cfg), "secrets", "", func(o *metav1.ListOptions) {
					o.LabelSelector = "app=a"
				})
			}},
		{name: "standalone", server: &corev1.ConfigMap{}, kind: &corev1.ConfigMap{}, ns: "default", standalone: true,
			lw: func(cfg *rest.Config) cache.ListerWatcher {
				return cache.NewListWatchFromClient(core(cfg), "configmaps", "default", fields.Everything())
			}},
		{name: "unstructured", server: &corev1.ConfigMap{}, kind: of(&unstructured.Unstructured{}, configMap),
			ns: "web", lw: func(cfg *rest.Config) cache.ListerWatcher {
				c := dynamic.NewForConfigOrDie(cfg).Resource(configMaps).Namespace("web")
				return like(c.List, c.Watch)
			}},
		{name: "widgets", server: linkedWidget("", "", ""),
			kind: of(&unstructured.Unstructured{}, widgets.WithKind("Widget")),
			lw: func(cfg *rest.Config) cache.ListerWatcher {
				c := dynamic.NewForConfigOrDie(cfg).Resource(widgets.WithResource("widgets"))
				return like(c.List, c.Watch)
			}},
		{name: "metadata", server: &corev1.ConfigMap{}, kind: of(&metav1.PartialObjectMetadata{}, configMap),
			lw: func(cfg *rest.Config) cache.ListerWatcher {
				c := metadata.NewForConfigOrDie(cfg).Resource(configMaps)
				return like(c.List, c.Watch)
			}},
	}
}

// make makes the informer of another life.
func (s *linked) make(db *boltstore.DB, lw cache.ListerWatcher, o reflector.Options) error {
	s.say("another life")
	if s.standalone {
		of, err := reflector.NewStandalone(db, lw, s.kind, o)
		if err != nil {
			return err
		}
		s.inf = standaloneInformer{cache.NewSharedIndexInformer(of, s.kind, 0, cache.Indexers{}), of}
		s.mu.Lock()
		defer s.mu.Unlock()
		clear(s.there) // it is not told what was deleted before
	} else {
		inf, err := NewSharedIndexInformer(db, lw, s.kind, Options{Reflector: o})
		if err != nil {
			return err
		}
		s.inf = inf
		if _, err := inf.AddDurableHandler("links", linkedHandler{s}, DurableOptions{}); err != nil {
			return err
		}
	}
	_, err := s.inf.AddEventHandler(linkedHandler{s})
	return err
}

func (s *linked) fault(format string, a ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf("%v %s: ", time.Since(s.began), s.name)+fmt.Sprintf(format, a...))
}

func (s *linked) say(format string, a ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf("%v %s: ", time.Since(s.began), s.name)+fmt.Sprintf(format, a...))
}

// seen is an object's UID and version.
type seen struct {
	uid string
	rv  uint64
}

func seenOf(o metav1.Object) seen {
	rv, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		panic(err)
	}
	return seen{string(o.GetUID()), rv}
}

func linkedKey(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

// state is the server's objects of the source, and its version.
func (s *linked) state() (map[string]seen, uint64) {
	all, rv, err := s.sim.List(s.server)
	if err != nil {
		panic(err)
	}
	there := map[string]seen{}
	for _, o := range all {
		if (s.ns == "" || s.ns == o.GetNamespace()) && (!s.selected || o.GetLabels()["app"] == "a") {
			there[linkedKey(o)] = seenOf(o)
		}
	}
	return there, rv
}

// wantFresh waits for a fresh store, which must then have what the server had before.
func (s *linked) wantFresh(ctx context.Context, d time.Duration) {
	had, rv := s.state()
	ctx, end := context.WithTimeout(ctx, d)
	defer end()
	if s.inf.WaitForFresh(ctx, 0) != nil {
		return
	}
	if d := s.behind(had, rv); d != "" {
		s.fault("fresh, but %s", d)
	}
}

// behind says how the store is behind what the server had at a version.
func (s *linked) behind(had map[string]seen, rv uint64) string {
	got := map[string]seen{}
	for _, o := range s.inf.GetStore().List() {
		m, err := meta.Accessor(o)
		if err != nil {
			panic(err)
		}
		got[linkedKey(m)] = seenOf(m)
	}
	now, _ := s.state()
	for k, v := range had {
		switch g, ok := got[k]; {
		case ok && g.rv < v.rv:
			return fmt.Sprintf("%s is at %d, not at %d", k, g.rv, v.rv)
		case !ok && now[k].uid == v.uid && !s.selected: // a selected one may have gone and come
			return fmt.Sprintf("%s is missing", k)
		}
	}
	for k, g := range got {
		if v, ok := had[k]; (!ok || v.uid != g.uid) && g.rv <= rv {
			return fmt.Sprintf("%s at %d is still there", k, g.rv)
		}
	}
	return ""
}

// equal says how store and handlers differ from the server.
func (s *linked) equal() string {
	now, rv := s.state()
	if d := s.behind(now, rv); d != "" {
		return d
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	handlers := map[string]map[string]string{"plain": s.there, "durable": s.durable}
	if s.standalone {
		delete(handlers, "durable")
	}
	for who, believes := range handlers {
		for k, v := range now {
			if believes[k] != fmt.Sprint(v.rv) {
				return fmt.Sprintf("%s: %s is at %q, not %d", who, k, believes[k], v.rv)
			}
		}
		for k := range believes {
			if _, ok := now[k]; !ok {
				return fmt.Sprintf("%s: %s was not told as deleted", who, k)
			}
		}
	}
	return ""
}

// linkedHandler is the plain and the durable handler of a source.
type linkedHandler struct{ s *linked }

func (h linkedHandler) told(to map[string]string, who string, typ cache.DeltaType, obj any) {
	s := h.s
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		s.fault("%s is told %s of a %T", who, typ, obj)
		return
	}
	key := linkedKey(m)
	s.say("%s %s %s %s %s", who, typ, key, m.GetUID(), m.GetResourceVersion())
	now, _ := s.state()
	if typ == cache.Deleted && now[key].uid == string(m.GetUID()) && !s.selected {
		s.fault("%s is told the delete of %s, which is there", who, key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if typ == cache.Deleted {
		delete(to, key)
	} else {
		to[key] = m.GetResourceVersion()
	}
}

func (h linkedHandler) OnAdd(o any, _ bool) { h.told(h.s.there, "plain", cache.Added, o) }
func (h linkedHandler) OnUpdate(_, o any)   { h.told(h.s.there, "plain", cache.Updated, o) }
func (h linkedHandler) OnDelete(o any)      { h.told(h.s.there, "plain", cache.Deleted, o) }

func (h linkedHandler) HandleEvent(_ context.Context, e Event) error {
	if e.Reset && len(h.s.durable) > 0 {
		h.s.fault("the durable handler starts over")
	}
	each(e, func(typ cache.DeltaType, obj any) { h.told(h.s.durable, "durable", typ, obj) })
	return nil
}
