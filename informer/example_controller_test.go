package informer_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/exampletest"
)

// A program that has an indexer and a controller of cache.NewIndexerInformer, or of
// cache.NewInformerWithOptions, gets both from one informer. Its handler has been told every
// object when the registration has synced.
func ExampleNewSharedIndexInformer_indexerAndController() {
	cluster := exampletest.Start("a", "b")
	defer cluster.End()
	db, err := boltstore.Open(cluster.Path(), boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	enqueue := func(obj any) {
		if name, err := cache.DeletionHandlingObjectToName(obj); err == nil {
			queue.Add(name)
		}
	}
	handler := cache.ResourceEventHandlerFuncs{AddFunc: enqueue, UpdateFunc: func(_, obj any) {
		enqueue(obj)
	}, DeleteFunc: enqueue}

	// indexer, controller := cache.NewIndexerInformer(lw, &corev1.ConfigMap{}, 0, handler, cache.Indexers{})
	inf, err := informer.NewSharedIndexInformer(db, configMaps(cluster.Config()), &corev1.ConfigMap{},
		informer.Options{})
	if err != nil {
		log.Fatal(err)
	}
	told, err := inf.AddEventHandler(handler)
	if err != nil {
		log.Fatal(err)
	}
	indexer, controller := inf.GetIndexer(), cache.Controller(inf)

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { controller.RunWithContext(ctx); close(ended) }()
	cache.WaitForCacheSync(ctx.Done(), controller.HasSynced, told.HasSynced)
	fmt.Println(len(indexer.List()), "objects,", queue.Len(), "in the queue")

	stop()
	<-ended
	queue.ShutDown()
	// Output:
	// 2 objects, 2 in the queue
}
