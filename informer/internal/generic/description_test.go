package generic_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	stockdynamic "k8s.io/client-go/dynamic/dynamicinformer"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	stockmetadata "k8s.io/client-go/metadata/metadatainformer"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/dynamicinformer"
	"github.com/kubewake/kubewake/informer/metadatainformer"
)

// TestDescriptions: a watch error handler learns from the Reflector which list failed, as
// with client-go's factories, even if an informer keeps its objects in memory.
func TestDescriptions(t *testing.T) {
	scheme := metadatafake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	fail := func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, context.DeadlineExceeded }
	dynamic := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{widgets: "WidgetList"})
	dynamic.PrependReactor("list", "*", fail)
	metadata := metadatafake.NewSimpleMetadataClient(scheme)
	metadata.PrependReactor("list", "*", fail)
	db := temporary(t)
	ours := func() (all []factory) {
		d, err := dynamicinformer.NewDynamicSharedInformerFactory(dynamic, 0, db, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := metadatainformer.NewSharedInformerFactory(metadata, 0, db, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return []factory{d, m}
	}
	first, second := ours(), ours() // the second ones' lists are claimed by then
	for i, stock := range []factory{stockdynamic.NewDynamicSharedInformerFactory(dynamic, 0),
		stockmetadata.NewSharedInformerFactory(metadata, 0)} {
		var said []string
		for _, f := range []factory{stock, first[i], second[i]} {
			calls := make(chan string, 100)
			if err := f.ForResource(widgets).Informer().SetWatchErrorHandler(func(r *cache.Reflector, _ error) {
				select {
				case calls <- r.TypeDescription():
				default: // the first call counts
				}
			}); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			f.Start(ctx.Done())
			said = append(said, <-calls)
			defer f.Shutdown()
			defer stop()
		}
		if said[1] != said[0] || said[2] != said[0] {
			t.Errorf("client-go's is of %q, ours of %q, in memory of %q", said[0], said[1], said[2])
		}
	}
	if n := len(db.Fallbacks()); n != 2 {
		t.Errorf("%d informers are in memory", n)
	}
}
