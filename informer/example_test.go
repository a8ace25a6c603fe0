package informer_test

import (
	"context"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/exampletest"
	"github.com/kubewake/kubewake/reflector"
)

// configMaps lists the config maps of a namespace, through a client with a wrapped
// config.
func configMaps(cfg *rest.Config) cache.ListerWatcher {
	client := kubernetes.NewForConfigOrDie(reflector.WrapConfig(cfg))
	return cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", "web", fields.Everything())
}

// A restarted program can read its last state at once, and is told the deletes that it
// has missed.
func ExampleNewSharedIndexInformer() {
	cluster := exampletest.Start("a", "b")
	defer cluster.End()

	life := func() {
		db, err := boltstore.Open(cluster.Path(), boltstore.Options{})
		if err != nil {
			log.Fatal(err)
		}
		defer db.Close()
		inf, err := informer.NewSharedIndexInformer(db, configMaps(cluster.Config()), &corev1.ConfigMap{},
			informer.Options{})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("before any request:", len(inf.GetStore().List()))

		handler, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
			DeleteFunc: func(obj any) {
				name, _ := cache.DeletionHandlingObjectToName(obj)
				fmt.Println("deleted meanwhile:", name)
			},
		})
		if err != nil {
			log.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { inf.RunWithContext(ctx); close(ended) }()
		cache.WaitFor(ctx, "", handler.HasSyncedChecker())
		fmt.Println("confirmed by the server:", len(inf.GetStore().List()))
		stop()
		<-ended
	}

	life()
	cluster.Delete("b")
	life()
	// Output:
	// before any request: 0
	// confirmed by the server: 2
	// before any request: 2
	// deleted meanwhile: web/b
	// confirmed by the server: 1
}

// A durable handler is told the keys that it has not acknowledged, deletes included,
// even if the program was killed in the middle of its work.
func ExampleInformer_AddDurableHandler() {
	cluster := exampletest.Start("a", "b")
	defer cluster.End()

	// life runs a handler until it has been told two events.
	life := func(handle func(informer.Event) error) {
		db, err := boltstore.Open(cluster.Path(), boltstore.Options{})
		if err != nil {
			log.Fatal(err)
		}
		defer db.Close()
		inf, err := informer.NewSharedIndexInformer(db, configMaps(cluster.Config()), &corev1.ConfigMap{},
			informer.Options{})
		if err != nil {
			log.Fatal(err)
		}
		told := make(chan informer.Event)
		_, err = inf.AddDurableHandler("invoices",
			informer.DurableHandlerFunc(func(_ context.Context, e informer.Event) error {
				if e.Reset {
					return nil // of a new name; every object follows
				}
				told <- e
				return handle(e)
			}), informer.DurableOptions{})
		if err != nil {
			log.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan struct{})
		go func() { inf.RunWithContext(ctx); close(ended) }()
		for range 2 {
			e := <-told
			for range e.Deleted {
				fmt.Println("deleted", e.Key)
			}
			if e.Object != nil {
				fmt.Println("there is", e.Key)
			}
		}
		stop()
		<-ended
	}

	fmt.Println("first life, in which b is not finished")
	life(func(e informer.Event) error {
		if e.Key == "web/b" {
			return informer.ErrAckLater // whose Ack never comes
		}
		return nil
	})
	cluster.Delete("a")
	fmt.Println("second life")
	life(func(informer.Event) error { return nil })
	// Unordered output:
	// first life, in which b is not finished
	// there is web/a
	// there is web/b
	// second life
	// there is web/b
	// deleted web/a
}

// A workqueue whose items come back after a restart, until they are done.
func ExampleNewDurableQueue() {
	cluster := exampletest.Start("a")
	defer cluster.End()
	db, err := boltstore.Open(cluster.Path(), boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	inf, err := informer.NewSharedIndexInformer(db, configMaps(cluster.Config()), &corev1.ConfigMap{},
		informer.Options{})
	if err != nil {
		log.Fatal(err)
	}

	inner := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())
	queue := informer.NewDurableQueue(inner, func(e informer.Event) []string {
		if e.Reset {
			return nil // every object follows
		}
		return []string{e.Key}
	})
	if _, err := inf.AddDurableHandler("shop", queue, informer.DurableOptions{}); err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { inf.RunWithContext(ctx); close(ended) }()

	item, _ := queue.Get()
	fmt.Println("work on", item)
	queue.Forget(item)
	queue.Done(item) // acknowledges the event

	stop()
	<-ended
	queue.ShutDown()
	// Output:
	// work on web/a
}

// A controller-runtime manager takes the function that ForControllerRuntime returns, and
// calls it for each list of its cache.
func ExampleForControllerRuntime() {
	cluster := exampletest.Start("a")
	defer cluster.End()
	db, err := boltstore.Open(cluster.Path(), boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close() // after the manager has ended

	newInformer := informer.ForControllerRuntime(db, informer.Options{MaxStaleness: time.Hour})

	// A program does this:
	// mgr, err := ctrl.NewManager(reflector.WrapConfig(cfg), ctrl.Options{Cache:
	// cache.Options{NewInformer: newInformer}})
	// For the config maps of a namespace, the manager then calls:
	inf := newInformer(configMaps(cluster.Config()), &corev1.ConfigMap{}, 10*time.Hour, cache.Indexers{})

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { inf.RunWithContext(ctx); close(ended) }()
	cache.WaitFor(ctx, "", inf.HasSyncedChecker())
	fmt.Println("objects:", len(inf.GetStore().List()), "lists that the file does not keep:", len(db.Fallbacks()))
	stop()
	<-ended
	// Output:
	// objects: 1 lists that the file does not keep: 0
}
