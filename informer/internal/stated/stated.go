// Package stated says which list a client asks for, where there is no request that
// shows it: a client-go fake has no transport.
package stated

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewake/kubewake/boltstore"
)

// Source is the source of a list of the resource, with the selectors that tweak sets.
// tweak may be nil.
func Source(gvr schema.GroupVersionResource, namespace string, tweak func(*metav1.ListOptions), form boltstore.Form) boltstore.Source {
	var o metav1.ListOptions
	if tweak != nil {
		tweak(&o)
	}
	return boltstore.Source{
		Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Namespace: namespace, Form: form,
		LabelSelector: o.LabelSelector, FieldSelector: o.FieldSelector, ShardSelector: o.ShardSelector,
	}
}

// Fake says whether a clientset is one of client-go's fakes, which are told apart by
// their methods: no other client forgets its actions, or refuses to stream lists.
func Fake(client any) bool {
	f, ok := client.(interface {
		ClearActions()
		IsWatchListSemanticsUnSupported() bool
	})
	return ok && f.IsWatchListSemanticsUnSupported()
}
