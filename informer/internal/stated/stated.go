// Package stated says which list a client asks for if no request shows it: a client-go
// fake has no transport.
package stated

import (
	"path"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/watchlist"

	"github.com/kubewake/kubewake/boltstore"
)

// Source is the source of a list of the resource, with the selectors that tweak sets.
// tweak may be nil.
func Source(
	gvr schema.GroupVersionResource, namespace string, tweak func(*metav1.ListOptions), form boltstore.Form,
) boltstore.Source {
	var o metav1.ListOptions
	if tweak != nil {
		tweak(&o)
	}
	return boltstore.Source{
		Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Namespace: namespace, Form: form,
		LabelSelector: o.LabelSelector, FieldSelector: o.FieldSelector, ShardSelector: o.ShardSelector,
	}
}

// Guess is a resource for objects like example, where nothing tells which one a fake lists:
// the same for each object of the type.
func Guess(example runtime.Object) schema.GroupVersionResource {
	gvk := example.GetObjectKind().GroupVersionKind()
	if known, _, err := scheme.Scheme.ObjectKinds(example); gvk.Kind == "" && err == nil {
		gvk = known[0]
	}
	if gvk.Kind == "" {
		t := reflect.TypeOf(example).Elem()
		gvk = schema.GroupVersionKind{Group: "informertest", Version: path.Base(t.PkgPath()), Kind: t.Name()}
	}
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	plural.Resource = strings.ToLower(plural.Resource)
	return plural
}

// Fake says whether a clientset is one of client-go's fakes. It recognises them by their
// methods: no other client clears its actions or refuses to stream lists.
func Fake(client any) bool {
	f, ok := client.(interface {
		ClearActions()
		IsWatchListSemanticsUnSupported() bool
	})
	return ok && f.IsWatchListSemanticsUnSupported()
}

// ListerWatcher returns lw as one that states its source; see reflector.Options.Source.
func ListerWatcher(lw cache.ListerWatcher, src boltstore.Source) cache.ListerWatcher {
	return &listerWatcher{lw, cache.ToListerWatcherWithContext(lw), src}
}

type listerWatcher struct {
	cache.ListerWatcher
	cache.ListerWatcherWithContext
	source boltstore.Source
}

func (l *listerWatcher) StatedSource() boltstore.Source { return l.source }

// IsWatchListSemanticsUnSupported tells a stock Reflector whether lw streams lists.
func (l *listerWatcher) IsWatchListSemanticsUnSupported() bool {
	return watchlist.DoesClientNotSupportWatchListSemantics(l.ListerWatcher)
}
