package controllerruntime

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kubewake/kubewake/boltstore"
)

const (
	// discoveryPatience is how long a kind that the file has waits for the server.
	discoveryPatience = time.Second
	// discoveryPause is how long the server is not asked again after that.
	discoveryPause = 10 * time.Second
)

// wakingMapper is a RESTMapper of a manager. It asks the server, as controller-runtime's
// own does. While the server does not answer, it goes by the kinds that the file has:
// without a mapping, controller-runtime makes no informer that could read the file.
type wakingMapper struct {
	server meta.RESTMapper
	file   meta.RESTMapper
	failed atomic.Pointer[time.Time] // when the server last did not answer
}

// wakingMapperOf returns the MapperProvider of a manager whose cache is in the file.
func wakingMapperOf(db *boltstore.DB) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(cfg *rest.Config, c *http.Client) (meta.RESTMapper, error) {
		server, err := apiutil.NewDynamicRESTMapper(cfg, c)
		if err != nil {
			return nil, err
		}
		states, err := db.States()
		if err != nil {
			return nil, err
		}
		return &wakingMapper{server: server, file: mapperOf(states)}, nil
	}
}

// mapperOf has the kinds of the sources, as far as they are known.
func mapperOf(states []boltstore.State) meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, st := range states {
		gv, err := schema.ParseGroupVersion(st.APIVersion)
		if err != nil || st.Kind == "" || gv != (schema.GroupVersion{Group: st.Source.Group, Version: st.Source.Version}) {
			continue
		}
		scope := meta.RESTScopeRoot
		switch st.Scope {
		case boltstore.ScopeNamespaced:
			scope = meta.RESTScopeNamespace
		case boltstore.ScopeCluster:
		default:
			continue // it has never had an object
		}
		gvk := gv.WithKind(st.Kind)
		_, singular := meta.UnsafeGuessKindToResource(gvk)
		m.AddSpecific(gvk, gv.WithResource(st.Source.Resource), singular, scope)
	}
	return m
}

// mapped asks the server, or the file if the server does not answer. If the server says
// that there is no such kind, that holds.
func mapped[T any](m *wakingMapper, of func(meta.RESTMapper) (T, error)) (T, error) {
	kept, err := of(m.file)
	if err != nil {
		return of(m.server)
	}
	if last := m.failed.Load(); last != nil && time.Since(*last) < discoveryPause {
		return kept, nil
	}
	type answer struct {
		v   T
		err error
	}
	got := make(chan answer, 1)
	go func() {
		v, err := of(m.server)
		got <- answer{v, err}
	}()
	select {
	case a := <-got:
		if a.err == nil || isAnswer(a.err) {
			return a.v, a.err
		}
	case <-time.After(discoveryPatience):
	}
	now := time.Now()
	m.failed.Store(&now)
	return kept, nil
}

// isAnswer says whether the server has answered that it has no such kind.
func isAnswer(err error) bool {
	var status apierrors.APIStatus
	return meta.IsNoMatchError(err) || meta.IsAmbiguousError(err) || errors.As(err, &status) && status.Status().Code == http.StatusNotFound
}

func (m *wakingMapper) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return mapped(m, func(r meta.RESTMapper) (schema.GroupVersionKind, error) { return r.KindFor(resource) })
}

func (m *wakingMapper) KindsFor(resource schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return mapped(m, func(r meta.RESTMapper) ([]schema.GroupVersionKind, error) { return r.KindsFor(resource) })
}

func (m *wakingMapper) ResourceFor(input schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return mapped(m, func(r meta.RESTMapper) (schema.GroupVersionResource, error) { return r.ResourceFor(input) })
}

func (m *wakingMapper) ResourcesFor(input schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return mapped(m, func(r meta.RESTMapper) ([]schema.GroupVersionResource, error) { return r.ResourcesFor(input) })
}

func (m *wakingMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return mapped(m, func(r meta.RESTMapper) (*meta.RESTMapping, error) { return r.RESTMapping(gk, versions...) })
}

func (m *wakingMapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return mapped(m, func(r meta.RESTMapper) ([]*meta.RESTMapping, error) { return r.RESTMappings(gk, versions...) })
}

func (m *wakingMapper) ResourceSingularizer(resource string) (string, error) {
	return m.server.ResourceSingularizer(resource)
}
