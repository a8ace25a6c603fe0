// Package dynamicinformer replaces client-go's package of that name: its factories keep
// their objects in the file, and wake from it. The types are client-go's. The functions
// that make factories also take a file and options, and return an error.
// [informer.NewSharedIndexInformer] makes an informer without a factory.
package dynamicinformer

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/dynamic/dynamiclister"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/internal/generic"
)

// DynamicSharedInformerFactory is client-go's.
type DynamicSharedInformerFactory = dynamicinformer.DynamicSharedInformerFactory

// TweakListOptionsFunc is client-go's.
type TweakListOptionsFunc = dynamicinformer.TweakListOptionsFunc

// NewDynamicSharedInformerFactory returns a factory for all namespaces. See
// [NewFilteredDynamicSharedInformerFactory].
func NewDynamicSharedInformerFactory(
	client dynamic.Interface, defaultResync time.Duration, db *boltstore.DB, o informer.Options,
) (DynamicSharedInformerFactory, error) {
	return NewFilteredDynamicSharedInformerFactory(client, defaultResync, metav1.NamespaceAll, nil, db, o)
}

// NewFilteredDynamicSharedInformerFactory returns a factory for a namespace, whose lists
// and watches have the options that tweakListOptions makes. The client must come from a
// config that reflector.WrapConfig has changed, or be a fake. Otherwise the error is
// reflector.ErrUnidentified. For any other client, set Options.Reflector.Source to say
// that its lists are those that the factory asks for. Of that Source only Cluster counts.
//
// ForResource cannot return an error. A list that another informer has claimed is kept in
// memory, as [informer.ForControllerRuntime] says. An informer whose objects are in the
// file is an *informer.Informer.
func NewFilteredDynamicSharedInformerFactory(client dynamic.Interface, defaultResync time.Duration, namespace string,
	tweakListOptions TweakListOptionsFunc, db *boltstore.DB, o informer.Options) (DynamicSharedInformerFactory, error) {
	if client == nil {
		return nil, errors.New("dynamicinformer: the factory needs a client")
	}
	f, err := generic.New(db, defaultResync, generic.Lists{
		Client: client, Example: &unstructured.Unstructured{}, Namespace: namespace, Tweak: tweakListOptions,
		List: func(ctx context.Context, gvr schema.GroupVersionResource, o metav1.ListOptions) (runtime.Object, error) {
			return client.Resource(gvr).Namespace(namespace).List(ctx, o)
		},
		Watch: func(ctx context.Context, gvr schema.GroupVersionResource, o metav1.ListOptions) (watch.Interface,
			error) {
			return client.Resource(gvr).Namespace(namespace).Watch(ctx, o)
		},
		Describe: schema.GroupVersionResource.String,
		Lister: func(indexer cache.Indexer, gvr schema.GroupVersionResource) cache.GenericLister {
			return dynamiclister.NewRuntimeObjectShim(dynamiclister.New(indexer, gvr))
		},
	}, o)
	if err != nil {
		return nil, fmt.Errorf("dynamicinformer: %w", err)
	}
	return f, nil
}
