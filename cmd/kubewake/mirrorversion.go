package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector"
)

// The file says in which API version a type was mirrored, so that a start needs no
// server. A server that is upgraded may drop that version and serve the objects in
// another one.

// errOtherVersion ends a life. Another life, with the version that is served, follows.
var errOtherVersion = errors.New("another version is served")

// follow waits until the server refuses a type. As long as it does, follow asks whether
// the server has dropped the version. If another version is served, the mirror begins
// again with that. Otherwise the other types go on, and this one is tried again.
func (m *mirror) follow(
	ctx context.Context, cfg *rest.Config, src *source, r resource, arg string, end context.CancelCauseFunc,
) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-src.denied:
		}
		never := !src.inf.Store().State().Synced
		pause := wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.2, Steps: 10, Cap: 10 * time.Minute}
		for {
			st := src.inf.State()
			if st.Phase != reflector.PhaseDenied {
				break
			}
			if other, ok := otherVersion(ctx, cfg, r); ok {
				m.logf("%s: the server no longer serves this; it is mirrored as %s, scope %s", src.name,
					other.gvr.GroupVersion(), other.Scope)
				m.moved.Store(arg, other)
				src.unserved.Store(true)
				end(errOtherVersion)
				return
			}
			if never {
				m.logf("%s cannot be mirrored: %s; it is tried again", src.name, withHint(st.Reason))
				never = false // it is said once
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause.Step()):
			}
		}
	}
}

// otherVersion returns the type as the server serves it, if it no longer serves the given
// version, or serves it in the other scope.
func otherVersion(ctx context.Context, cfg *rest.Config, r resource) (other resource, ok bool) {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil || r.gvr.Group == "" {
		return other, false
	}
	in := func(gv string) (*metav1.APIResource, error) { return servedIn(ctx, client, gv, r.gvr.Resource) }
	as := func(version string, a *metav1.APIResource) resource {
		other := resource{gvr: r.gvr, gvk: schema.GroupVersionKind{Group: r.gvr.Group, Version: version, Kind: a.Kind}}
		other.gvr.Version, other.Kind = version, a.Kind
		other.Scope = boltstore.ScopeCluster
		if a.Namespaced {
			other.Scope = boltstore.ScopeNamespaced
		}
		describe(ctx, client.RESTClient(), &other, *a)
		return other
	}
	a, err := in(r.gvr.GroupVersion().String())
	switch {
	case a != nil:
		other = as(r.gvr.Version, a)
		return other, r.Scope != "" && other.Scope != r.Scope // its definition was made again
	case err != nil && !apierrors.IsNotFound(err):
		return other, false
	}
	var group metav1.APIGroup
	if err := client.RESTClient().Get().AbsPath("/apis", r.gvr.Group).Do(ctx).Into(&group); err != nil {
		return other, false
	}
	for _, v := range append([]metav1.GroupVersionForDiscovery{group.PreferredVersion}, group.Versions...) {
		a, err := in(v.GroupVersion)
		if err != nil || a == nil {
			continue
		}
		return as(v.Version, a), true
	}
	return other, false
}

// servedIn returns what discovery says of a resource, nil if it is not served.
func servedIn(ctx context.Context, client *discovery.DiscoveryClient, gv, resource string) (
	*metav1.APIResource, error,
) {
	list, err := client.ServerResourcesForGroupVersionWithContext(ctx, gv)
	if err != nil {
		return nil, err
	}
	for _, a := range list.APIResources {
		if a.Name == resource {
			return &a, nil
		}
	}
	return nil, nil
}

// describeAgain asks for a custom resource's names and columns after each relist: a server
// that changes its definition ends the watch and forgets earlier versions.
func (m *mirror) describeAgain(ctx context.Context, cfg *rest.Config, src *source, r resource) {
	client, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil || scheme.Scheme.Recognizes(r.gvk) {
		return
	}
	var described time.Time
	var retry <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-src.confirmed:
		case <-retry:
		}
		st := src.inf.State()
		if st.LastRelistAt.Equal(described) || st.LastRelist == reflector.ReasonFirst { // just after it was described
			continue
		}
		a, err := servedIn(ctx, client, r.gvr.GroupVersion().String(), r.gvr.Resource)
		if err != nil {
			retry = time.After(time.Minute)
			continue
		}
		described = st.LastRelistAt
		if a == nil { // see follow
			continue
		}
		describe(ctx, client.RESTClient(), &r, *a)
		d := boltstore.Description{Kind: a.Kind, Names: r.Names, Categories: r.Categories, Columns: r.Columns}
		if err := src.inf.Store().Describe(d); err != nil {
			m.logf("%s: its names and columns could not be stored: %s", src.name, oneLine(err))
		}
	}
}

// named returns a type with its names. If the server does not say them, the type is
// known by its resource and kind only. A type that the server never lists is an error.
func (s *served) named(ctx context.Context, r resource) (resource, error) {
	r.Kind, r.Names = r.gvk.Kind, namesIn(metav1.APIResource{Kind: r.gvk.Kind})
	list, err := during(ctx, func() (*metav1.APIResourceList, error) {
		return s.client.ServerResourcesForGroupVersion(r.gvr.GroupVersion().String())
	})
	if err != nil {
		return r, ctx.Err()
	}
	for _, a := range list.APIResources {
		if a.Name != r.gvr.Resource {
			continue
		}
		if len(a.Verbs) > 0 && !slices.Contains(a.Verbs, "list") {
			return r, fmt.Errorf("%s cannot be mirrored: the server does not list them, it only lets clients %s them",
				r.gvr.GroupResource(), strings.Join(a.Verbs, ", "))
		}
		describe(ctx, s.client.RESTClient(), &r, a)
	}
	return r, nil
}

// describe notes the discovery of a type, and the columns in the definition of a custom
// resource.
func describe(ctx context.Context, client rest.Interface, r *resource, a metav1.APIResource) {
	r.Names, r.Categories = namesIn(a), append([]string{}, a.Categories...) // not nil: there may be none any more
	if !scheme.Scheme.Recognizes(r.gvk) {
		r.Columns = columnsIn(ctx, client, r.gvr)
	}
}

// columnsIn are the columns of a custom resource, not nil if there are none. It returns nil
// if the server does not show the definition.
func columnsIn(ctx context.Context, client rest.Interface, gvr schema.GroupVersionResource) []boltstore.Column {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	body, err := client.Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		gvr.GroupResource().String()).
		SetHeader("Accept", runtime.ContentTypeJSON).Do(ctx).Raw()
	var definition struct {
		Spec struct {
			Versions []struct {
				Name    string             `json:"name"`
				Columns []boltstore.Column `json:"additionalPrinterColumns"`
			} `json:"versions"`
		} `json:"spec"`
	}
	if err != nil || json.Unmarshal(body, &definition) != nil {
		return nil
	}
	for _, v := range definition.Spec.Versions {
		if v.Name == gvr.Version {
			return append([]boltstore.Column{}, v.Columns...)
		}
	}
	return nil
}

// namesIn returns the singular, the kind and the short names of a type, as users type them.
func namesIn(r metav1.APIResource) (names []string) {
	for _, name := range append([]string{r.SingularName, strings.ToLower(r.Kind)}, r.ShortNames...) {
		if name != "" && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
