package generic_test

import (
	"context"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	stockdynamic "k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	stockmetadata "k8s.io/client-go/metadata/metadatainformer"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/dynamicinformer"
	"github.com/kubewake/kubewake/informer/metadatainformer"
)

// TestFakes: client-go's fakes need no config: a factory knows what it asks them for.
func TestFakes(t *testing.T) {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	partial := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Widget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}}
	for name, f := range map[string]func(db *boltstore.DB) (stock, ours factory, err error){
		"dynamic": func(db *boltstore.DB) (factory, factory, error) {
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
				map[schema.GroupVersionResource]string{widgets: "WidgetList"}, widget("web", "a"), widget("db", "b"))
			f, err := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, "web", nil, db,
				informer.Options{})
			return stockdynamic.NewFilteredDynamicSharedInformerFactory(client, 0, "web", nil), f, err
		},
		"metadata": func(db *boltstore.DB) (factory, factory, error) {
			client := metadatafake.NewSimpleMetadataClient(scheme, partial)
			f, err := metadatainformer.NewFilteredSharedInformerFactory(client, 0, "web", nil, db, informer.Options{})
			return stockmetadata.NewFilteredSharedInformerFactory(client, 0, "web", nil), f, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			stock, ours, err := f(temporary(t))
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			for _, f := range []factory{stock, ours} {
				ctx, stop := context.WithCancel(context.Background())
				w := f.ForResource(widgets)
				f.Start(ctx.Done())
				synced := f.WaitForCacheSync(ctx.Done())
				obj, err := w.Lister().ByNamespace("web").Get("a")
				if err != nil {
					t.Fatal(err)
				}
				objs, err := w.Lister().List(labels.Everything())
				said = append(said, fmt.Sprint(synced, shown(obj), len(objs), err))
				stop()
				f.Shutdown()
			}
			if said[0] != said[1] {
				t.Errorf("client-go: %s\nours: %s", said[0], said[1])
			}
		})
	}
}
