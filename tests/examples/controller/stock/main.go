// A controller of the usual shape, with a shared informer factory, a lister, a work
// queue and workers. It writes a line for each config map that it has looked at.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	utilruntime.Must(err)
	client := kubernetes.NewForConfigOrDie(cfg)
	f := informers.NewSharedInformerFactory(client, 10*time.Hour)
	c := newController(f.Core().V1().ConfigMaps())
	f.StartWithContext(ctx)
	c.run(ctx, 2)
	f.Shutdown()
	klog.Flush()
}

type controller struct {
	lister corelisters.ConfigMapLister
	synced cache.InformerSynced
	queue  workqueue.TypedRateLimitingInterface[cache.ObjectName]
}

func newController(configMaps coreinformers.ConfigMapInformer) *controller {
	c := &controller{
		lister: configMaps.Lister(),
		synced: configMaps.Informer().HasSynced,
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]()),
	}
	_, err := configMaps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    c.enqueue,
		UpdateFunc: func(_, obj any) { c.enqueue(obj) },
		DeleteFunc: c.enqueue,
	})
	utilruntime.Must(err)
	return c
}

func (c *controller) enqueue(obj any) {
	name, err := cache.DeletionHandlingObjectToName(obj)
	if err != nil {
		utilruntime.HandleError(err)
		return
	}
	c.queue.Add(name)
}

// run works until ctx ends.
func (c *controller) run(ctx context.Context, workers int) {
	var wg sync.WaitGroup
	defer wg.Wait()
	defer c.queue.ShutDown()
	if !cache.WaitForCacheSync(ctx.Done(), c.synced) {
		return
	}
	for range workers {
		wg.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
}

func (c *controller) next(ctx context.Context) bool {
	name, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(name)
	if err := c.sync(name); err != nil {
		utilruntime.HandleErrorWithContext(ctx, err, "A config map is looked at again", "name", name)
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

func (c *controller) sync(name cache.ObjectName) error {
	cm, err := c.lister.ConfigMaps(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		fmt.Println("gone", name)
		return nil
	}
	if err != nil {
		return err
	}
	return look(cm)
}

func look(cm *corev1.ConfigMap) error {
	_, err := fmt.Println("found", cache.MetaObjectToName(cm), cm.Data["data"])
	return err
}
