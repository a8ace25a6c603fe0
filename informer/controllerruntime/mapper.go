package controllerruntime

import (
	"cmp"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	clientgo "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/lately"
)

const (
	// discoveryPatience is how long a kind that the file has waits for the server.
	discoveryPatience = time.Second
	// discoveryPause is how long the server is not asked again after that.
	discoveryPause = 10 * time.Second
	// discoveryTimeout is how long a question takes at most, as by client-go's default.
	discoveryTimeout = 32 * time.Second
)

// wakingMapper is a RESTMapper of a manager. It asks the server, as controller-runtime's
// own does. While the server does not answer, it goes by the kinds that the file has:
// without a mapping, controller-runtime makes no informer that could read the file.
type wakingMapper struct {
	server meta.RESTMapper
	file   meta.RESTMapper
	groups discovery.AggregatedDiscoveryInterface
	asking atomic.Int64              // questions to the server that have no answer yet
	failed atomic.Pointer[time.Time] // when the server last did not answer; nil if it has since
	scopes sync.Map                  // boltstore.Scope by schema.GroupVersionResource, as mapped
}

// mapperProvider is the type of manager.Options.MapperProvider.
type mapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error)

// wake makes the options of a manager or cluster use a wakingMapper over the cluster's part of
// the file, unless they have a mapper. Its informers then note in the file which scope their
// kinds have: without objects, nothing else would show it.
func wake(mapper *mapperProvider, c *crcache.Options, s *runtime.Scheme, db *boltstore.DB, cluster string) {
	if *mapper != nil {
		return
	}
	m := &wakingMapper{}
	*mapper = func(cfg *rest.Config, c *http.Client) (meta.RESTMapper, error) {
		if c != nil && c.Timeout == 0 {
			ends := *c
			ends.Timeout = discoveryTimeout
			c = &ends
		}
		server, err := apiutil.NewDynamicRESTMapper(cfg, c)
		if err != nil {
			return nil, err
		}
		groups, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, c)
		if err != nil {
			return nil, err
		}
		states, err := db.Sources()
		if err != nil {
			return nil, err
		}
		m.server, m.file, m.groups = server, mapperOf(states, clusterName(cluster, cfg)), groups
		return m, nil
	}
	informers := c.NewInformer
	c.NewInformer = func(lw cache.ListerWatcher, example runtime.Object, resync time.Duration,
		indexers cache.Indexers) cache.SharedIndexInformer {
		inf := informers(lw, withKind(example, s), resync, indexers)
		if kept, ok := inf.(*informer.Informer); ok {
			m.describe(kept.Store())
		}
		return inf
	}
}

// clusterName is a cluster's name in the file: the given one, or else the host's path.
func clusterName(given string, cfg *rest.Config) string {
	host, _, err := rest.DefaultServerUrlFor(cfg)
	if given != "" || err != nil { // with such a host no client can be made
		return given
	}
	return strings.Trim(host.Path, "/")
}

// schemeOf is the scheme of a cache, of a manager or cluster that has this one.
func schemeOf(c crcache.Options, s *runtime.Scheme) *runtime.Scheme {
	return cmp.Or(c.Scheme, s, clientgo.Scheme)
}

// withKind returns the example with its kind, if the scheme gives its Go type one of another
// name. The file then has the kind by which the type is asked for.
func withKind(example runtime.Object, s *runtime.Scheme) runtime.Object {
	gvk, err := apiutil.GVKForObject(example, s)
	if t := reflect.TypeOf(example); err != nil || t.Kind() != reflect.Pointer || t.Elem().Name() == gvk.Kind ||
		example.GetObjectKind().GroupVersionKind() == gvk {
		return example
	}
	example = example.DeepCopyObject()
	example.GetObjectKind().SetGroupVersionKind(gvk)
	return example
}

// describe notes the scope of the store's kind, if it was mapped.
func (m *wakingMapper) describe(s *boltstore.Store) {
	src := s.Source()
	scope, ok := m.scopes.Load(schema.GroupVersionResource{Group: src.Group, Version: src.Version,
		Resource: src.Resource})
	if !ok {
		return
	}
	// the next life asks the server again
	if err := s.Describe(boltstore.Description{Scope: scope.(boltstore.Scope)}); err != nil {
		log.Log.Info("The scope of a kind is not in the file yet", "source", src.String(), "error", err.Error())
	}
}

// mapperOf has the kinds of a cluster's sources, as far as they are known. Without a
// version, a kind has the most stable one in the file. A custom resource that was defined
// again may have left sources of another plural or scope: the source that the server
// confirmed last counts.
func mapperOf(states []boltstore.State, cluster string) meta.RESTMapper {
	var known []boltstore.State
	var versions []schema.GroupVersion
	for _, st := range states {
		gv, err := schema.ParseGroupVersion(st.APIVersion)
		if err != nil || st.Source.Cluster != cluster || st.Kind == "" || st.Scope == "" ||
			gv != (schema.GroupVersion{Group: st.Source.Group, Version: st.Source.Version}) {
			continue // an earlier program did not note the scope of a source without objects
		}
		known, versions = append(known, st), append(versions, gv)
	}
	slices.SortStableFunc(known, lately.Compare) // the last one counts
	slices.SortStableFunc(versions, func(a, b schema.GroupVersion) int {
		return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
	})
	m := meta.NewDefaultRESTMapper(slices.Compact(versions))
	scope := func(st boltstore.State) meta.RESTScope {
		if st.Scope == boltstore.ScopeNamespaced {
			return meta.RESTScopeNamespace
		}
		return meta.RESTScopeRoot
	}
	for _, st := range known { // caches of several namespaces ask for lists; a kind of such a name takes its place
		m.Add(schema.FromAPIVersionAndKind(st.APIVersion, st.Kind+"List"), scope(st))
	}
	for _, st := range known {
		gvk := schema.FromAPIVersionAndKind(st.APIVersion, st.Kind)
		_, singular := meta.UnsafeGuessKindToResource(gvk)
		m.AddSpecific(gvk, gvk.GroupVersion().WithResource(st.Source.Resource), singular, scope(st))
	}
	return m
}

// mapped asks the server, or the file if the server does not answer. If the server says
// that there is no such kind in the group, that holds. A silent server is not asked again
// before its last answers have come.
func mapped[T any](m *wakingMapper, group string, of func(meta.RESTMapper) (T, error)) (T, error) {
	kept, err := of(m.file)
	if err != nil {
		return of(m.server)
	}
	if last := m.failed.Load(); last != nil && (time.Since(*last) < discoveryPause || m.asking.Load() > 0) {
		return kept, nil
	}
	type answer struct {
		v   T
		err error
		no  bool // the server has no such kind
	}
	got := make(chan answer, 1)
	m.asking.Add(1)
	go func() {
		defer m.asking.Add(-1)
		v, err := of(m.server)
		got <- answer{v, err, isAnswer(err) && !m.away(group)}
	}()
	select {
	case a := <-got:
		if a.err == nil || a.no {
			m.failed.Store(nil)
			return a.v, a.err
		}
	case <-time.After(discoveryPatience):
	}
	now := time.Now()
	m.failed.Store(&now)
	return kept, nil
}

// away says whether the server cannot tell the kinds of the group: an API server behind it
// serves them, and does not answer.
func (m *wakingMapper) away(group string) bool {
	_, _, failed, err := m.groups.GroupsAndMaybeResources()
	for gv := range failed {
		if gv.Group == group {
			return true
		}
	}
	return err != nil
}

// isAnswer says whether the server has answered that it has no such kind.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return meta.IsNoMatchError(err) || meta.IsAmbiguousError(err) || errors.As(err, &status) &&
		status.Status().Code == http.StatusNotFound
}

func (m *wakingMapper) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return mapped(m, resource.Group, func(r meta.RESTMapper) (schema.GroupVersionKind, error) {
		return r.KindFor(resource)
	})
}

func (m *wakingMapper) KindsFor(resource schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return mapped(m, resource.Group, func(r meta.RESTMapper) ([]schema.GroupVersionKind, error) {
		return r.KindsFor(resource)
	})
}

func (m *wakingMapper) ResourceFor(input schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return mapped(m, input.Group, func(r meta.RESTMapper) (schema.GroupVersionResource, error) {
		return r.ResourceFor(input)
	})
}

func (m *wakingMapper) ResourcesFor(input schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return mapped(m, input.Group, func(r meta.RESTMapper) ([]schema.GroupVersionResource, error) {
		return r.ResourcesFor(input)
	})
}

func (m *wakingMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	to, err := mapped(m, gk.Group, func(r meta.RESTMapper) (*meta.RESTMapping, error) {
		return r.RESTMapping(gk, versions...)
	})
	if err != nil {
		return nil, err
	}
	scope := boltstore.ScopeCluster
	if to.Scope.Name() == meta.RESTScopeNameNamespace {
		scope = boltstore.ScopeNamespaced
	}
	m.scopes.Store(to.Resource, scope)
	return to, nil
}

func (m *wakingMapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return mapped(m, gk.Group, func(r meta.RESTMapper) ([]*meta.RESTMapping, error) {
		return r.RESTMappings(gk, versions...)
	})
}

func (m *wakingMapper) ResourceSingularizer(resource string) (string, error) {
	return m.server.ResourceSingularizer(resource)
}
