package apifile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubeapi"
	"github.com/kubewake/kubewake/internal/kubeapi/printcolumns"
	"github.com/kubewake/kubewake/internal/lately"
)

// storage is the file as one request sees it.
type storage struct {
	*handler
	kinds  []*kind
	header http.Header
	newest bool         // the request waits for Options.Fresh
	part   kubeapi.Part // of room
}

var _ kubeapi.Storage = &storage{}

// kind is a type with the sources that it is served from, the first choice first.
type kind struct {
	*kubeapi.Type
	sources []boltstore.State
}

// kindsOf finds the types among the file's sources, in the order of discovery: Kubernetes' own
// groups first, as at a server, then by name, the preferred version first. That is one that is kept
// up to date, if there is any.
func (h *handler) kindsOf(states []boltstore.State) []*kind {
	byName := map[schema.GroupVersionResource]*kind{}
	versions := map[schema.GroupVersion]boltstore.State{} // the best source of each
	var kinds []*kind
	for _, st := range states {
		src := st.Source
		if src.Cluster != h.opts.Cluster || src.ShardSelector != "" {
			continue
		}
		gvr := schema.GroupVersionResource{Group: src.Group, Version: src.Version, Resource: src.Resource}
		if src.Form == boltstore.FormMetadata && (st.Kind == "" || st.Kind == "PartialObjectMetadata") {
			st.APIVersion, st.Kind = gvr.GroupVersion().String(), builtIn()[gvr] // its objects do not say it
		}
		if st.Kind == "" {
			continue
		}
		k := byName[gvr]
		if k == nil {
			k = &kind{}
			byName[gvr] = k
			kinds = append(kinds, k)
		}
		k.sources = append(k.sources, st)
		if best, ok := versions[gvr.GroupVersion()]; !ok || h.kept(st, best) < 0 {
			versions[gvr.GroupVersion()] = st
		}
	}
	for _, k := range kinds {
		slices.SortStableFunc(k.sources, h.order)
		k.Type = typeOf(k.sources)
		// The sources differ in the forms that they can serve. Those with whole objects
		// come first.
		form := k.sources[0].Source.Form
		k.sources = slices.DeleteFunc(k.sources, func(st boltstore.State) bool { return st.Source.Form != form })
	}
	slices.SortStableFunc(kinds, func(a, b *kind) int {
		kept := 0
		if a.Group == b.Group && a.Version != b.Version {
			kept = h.kept(versions[a.GroupVersion()], versions[b.GroupVersion()])
		}
		return cmp.Or(prefer(scheme.Scheme.IsGroupRegistered(a.Group), scheme.Scheme.IsGroupRegistered(b.Group)),
			cmp.Compare(a.Group, b.Group), kept,
			-utilversion.CompareKubeAwareVersionStrings(a.Version, b.Version), cmp.Compare(a.Plural, b.Plural))
	})
	return kinds
}

// builtIn has the kinds of client-go's scheme.
var builtIn = sync.OnceValue(func() map[schema.GroupVersionResource]string {
	kinds := map[schema.GroupVersionResource]string{}
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if !strings.HasSuffix(gvk.Kind, "List") {
			gvr, _ := apimeta.UnsafeGuessKindToResource(gvk)
			kinds[gvr] = gvk.Kind
		}
	}
	return kinds
})

// order says which of two sources of a type is preferred. A source in use is kept up to
// date. If both are, the one of all namespaces also has what clients ask for elsewhere.
// If neither is, one may be long out of date.
func (h *handler) order(a, b boltstore.State) int {
	late, all := h.lately(a, b, time.Second), prefer(whole(a.Source), whole(b.Source))
	if a.InUse && b.InUse {
		late, all = all, late
	}
	return cmp.Or(
		prefer(a.Source.Form != boltstore.FormMetadata, b.Source.Form != boltstore.FormMetadata),
		prefer(a.Synced, b.Synced),
		prefer(a.InUse, b.InUse),
		late, all,
		prefer(a.Source.Form == boltstore.FormTyped, b.Source.Form == boltstore.FormTyped),
		cmp.Compare(a.Source.String(), b.Source.String()))
}

// kept compares how up to date two sources are. Two in use are equal.
func (h *handler) kept(a, b boltstore.State) int {
	if used := cmp.Or(prefer(a.Synced, b.Synced), prefer(a.InUse, b.InUse)); used != 0 || a.InUse {
		return used
	}
	return h.lately(a, b, time.Hour)
}

// lately compares the units of time in which two sources were confirmed, the later one
// first.
func (h *handler) lately(a, b boltstore.State, unit time.Duration) int {
	if a.ConfirmedAge == nil || b.ConfirmedAge == nil {
		return lately.Compare(b, a)
	}
	now := h.opts.Clock.Now()
	at := func(st boltstore.State) time.Time { return now.Add(-*st.ConfirmedAge).Truncate(unit) }
	return at(b).Compare(at(a))
}

func prefer(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func whole(src boltstore.Source) bool {
	return src.Namespace == "" && src.LabelSelector == "" && src.FieldSelector == ""
}

func typeOf(sources []boltstore.State) *kubeapi.Type {
	first := sources[0]
	r := kubeapi.Resource{GroupVersionKind: schema.FromAPIVersionAndKind(first.APIVersion, first.Kind),
		Plural: first.Source.Resource}
	r.Group, r.Version = first.Source.Group, first.Source.Version
	// If the scope is unknown there are no objects, and a namespace in a path does no
	// harm.
	r.Namespaced = !slices.ContainsFunc(sources, func(st boltstore.State) bool {
		return st.Scope == boltstore.ScopeCluster
	})
	singular := strings.ToLower(first.Kind)
	for _, st := range sources {
		if len(r.ShortNames) == 0 {
			r.ShortNames = slices.DeleteFunc(slices.Clone(st.Names), func(name string) bool { return name == singular })
		}
		if len(r.Categories) == 0 {
			r.Categories = st.Categories
		}
		if len(r.Columns) == 0 {
			for _, c := range st.Columns {
				r.Columns = append(r.Columns, printcolumns.Column(c))
			}
		}
	}
	if len(r.ShortNames) == 0 { // the program has not described the type
		r.ShortNames = kubeapi.ShortNamesOf(schema.GroupResource{Group: r.Group, Resource: r.Plural})
	}
	t := kubeapi.NewType(r, "get", "list", "watch")
	t.Custom = t.Custom || first.Source.Form == boltstore.FormUnstructured
	t.MetadataOnly = first.Source.Form == boltstore.FormMetadata
	for _, st := range sources {
		for _, r := range selectedBy(st.Source) {
			t.SelectedBy = append(t.SelectedBy, r.Field)
		}
	}
	return t
}

// Types implements kubeapi.Storage.
func (s *storage) Types() []*kubeapi.Type {
	types := make([]*kubeapi.Type, len(s.kinds))
	for i, k := range s.kinds {
		types[i] = k.Type
	}
	return types
}

// answer turns an error of the file into the API's.
func answer(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, boltstore.ErrTrimmed):
		return kubeapi.ErrExpired
	case errors.Is(err, boltstore.ErrNotWhole), errors.Is(err, boltstore.ErrNoSource):
		return apierrors.NewTooManyRequests(textOf(err), 1)
	case errors.Is(err, boltstore.ErrTaken), errors.Is(err, boltstore.ErrClosed):
		return unavailable(err, 1)
	}
	return err
}

// keyOf is the file's key of an API key.
func keyOf(key string) string { return strings.TrimPrefix(key, "/") }

// object is the API's form of an object of the file.
func (s *source) object(obj any) (*kubeapi.Object, error) {
	o, ok := obj.(kubeapi.APIObject)
	if !ok {
		return nil, fmt.Errorf("apifile: %s: %T is no API object", s.st.Source, obj)
	}
	out := s.t.Of(o, number(o.GetResourceVersion()))
	out.Known = s.known
	return out, nil
}

// number is a version as a number, 0 if it is none.
func number(version string) uint64 {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// Get implements kubeapi.Storage.
func (s *storage) Get(ctx context.Context, t *kubeapi.Type, namespace, name string, least uint64) (
	*kubeapi.Object, error,
) {
	key := keyOf(t.Key(namespace, name))
	sel := kubeapi.Selection{Namespace: namespace, Labels: labels.Everything(), Fields: fields.Everything()}
	src, notHere := s.pick(t, sel)
	if errors.Is(notHere, kubeapi.ErrNotHere) {
		if part, err := s.pickPart(t, namespace, key); err == nil {
			src = part
		}
	}
	if src == nil {
		return nil, notHere
	}
	s.freshen(ctx, src)
	if least > 0 {
		if _, err := s.reach(ctx, src, least); err != nil {
			return nil, answer(err)
		}
	}
	obj, _, err := src.GetAt(key)
	if err == nil && obj == nil {
		err = notHere // it may have left the part meanwhile
	}
	if err != nil || obj == nil {
		return nil, answer(err)
	}
	return src.object(obj)
}
