package metadatainformer_test

import (
	"context"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/metadata"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/metadatainformer"
	"github.com/kubewake/kubewake/internal/exampletest"
	"github.com/kubewake/kubewake/reflector"
)

// The package replaces client-go's of the same name. Making a factory also takes a file,
// and can fail.
func ExampleNewSharedInformerFactory() {
	cluster := exampletest.Start("a", "b")
	defer cluster.End()
	db, err := boltstore.Open(cluster.Path(), boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()

	client := metadata.NewForConfigOrDie(reflector.WrapConfig(cluster.Config()))
	f, err := metadatainformer.NewSharedInformerFactory(client, 10*time.Hour, db, informer.Options{})
	if err != nil {
		log.Fatal(err)
	}
	lister := f.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Lister()

	ctx, stop := context.WithCancel(context.Background())
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	got, err := lister.ByNamespace("web").List(labels.Everything())
	fmt.Println(len(got), err)
	stop()
	f.Shutdown()
	// Output:
	// 2 <nil>
}
