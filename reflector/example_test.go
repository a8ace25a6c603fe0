package reflector_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/exampletest"
	"github.com/kubewake/kubewake/reflector"
)

// client-go's own informer starts with the file's objects.
func ExampleNewStandalone() {
	cluster := exampletest.Start("a", "b")
	defer cluster.End()
	db, err := boltstore.Open(cluster.Path(), boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	client := kubernetes.NewForConfigOrDie(reflector.WrapConfig(cluster.Config()))
	configMaps := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", "", fields.Everything())
	lw, err := reflector.NewStandalone(db, configMaps, &corev1.ConfigMap{}, reflector.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer lw.Close()
	informer := cache.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, cache.Indexers{})

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { informer.RunWithContext(ctx); close(ended) }()
	cache.WaitFor(ctx, "", informer.HasSyncedChecker())
	fmt.Println(len(informer.GetStore().List()))
	stop()
	<-ended
	// Output:
	// 2
}
