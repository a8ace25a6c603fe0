// Package metadatainformer replaces client-go's package of that name: its factories keep
// their objects in the file, and wake from it. The types are client-go's. The functions
// that make factories also take a file and options, and return an error. A transform is
// given in the options. [informer.NewSharedIndexInformer] makes an informer without a
// factory.
package metadatainformer

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/metadata/metadatalister"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/internal/generic"
)

// SharedInformerFactory is client-go's.
type SharedInformerFactory = metadatainformer.SharedInformerFactory

// TweakListOptionsFunc is client-go's.
type TweakListOptionsFunc = metadatainformer.TweakListOptionsFunc

// NewSharedInformerFactory returns a factory for all namespaces. See
// [NewFilteredSharedInformerFactory].
func NewSharedInformerFactory(
	client metadata.Interface, defaultResync time.Duration, db *boltstore.DB, o informer.Options,
) (SharedInformerFactory, error) {
	return NewFilteredSharedInformerFactory(client, defaultResync, metav1.NamespaceAll, nil, db, o)
}

// NewFilteredSharedInformerFactory returns a factory for a namespace, whose lists and
// watches have the options that tweakListOptions makes. The client must come from a
// config that reflector.WrapConfig has changed, or be a fake. Otherwise the error is
// reflector.ErrUnidentified. For any other client, set Options.Reflector.Source to say
// that its lists are those that the factory asks for. Of that Source only Cluster counts.
//
// ForResource cannot return an error. A list that another informer has claimed is kept in
// memory, as [informer.ForControllerRuntime] says. An informer whose objects are in the
// file is an *informer.Informer.
func NewFilteredSharedInformerFactory(client metadata.Interface, defaultResync time.Duration, namespace string,
	tweakListOptions TweakListOptionsFunc, db *boltstore.DB, o informer.Options) (SharedInformerFactory, error) {
	if client == nil {
		return nil, errors.New("metadatainformer: the factory needs a client")
	}
	f, err := generic.New(db, defaultResync, generic.Lists{
		Client: client, Example: &metav1.PartialObjectMetadata{}, Namespace: namespace, Tweak: tweakListOptions,
		List: func(ctx context.Context, gvr schema.GroupVersionResource, o metav1.ListOptions) (runtime.Object, error) {
			return client.Resource(gvr).Namespace(namespace).List(ctx, o)
		},
		Watch: func(ctx context.Context, gvr schema.GroupVersionResource, o metav1.ListOptions) (watch.Interface,
			error) {
			return client.Resource(gvr).Namespace(namespace).Watch(ctx, o)
		},
		Lister: func(indexer cache.Indexer, gvr schema.GroupVersionResource) cache.GenericLister {
			return metadatalister.NewRuntimeObjectShim(metadatalister.New(indexer, gvr))
		},
	}, o)
	if err != nil {
		return nil, fmt.Errorf("metadatainformer: %w", err)
	}
	return f, nil
}
