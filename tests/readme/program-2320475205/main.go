package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		log.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(reflector.WrapConfig(cfg))
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", "", fields.Everything())

	db, err := boltstore.Open("cache.db", boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	inf, err := informer.NewSharedIndexInformer(db, lw, &corev1.ConfigMap{}, informer.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("before any request:", len(inf.GetStore().List()))

	handler, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
		DeleteFunc: func(obj any) {
			key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
			fmt.Println("deleted while we slept:", key)
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { inf.RunWithContext(ctx); close(done) }()

	cache.WaitFor(ctx, "", handler.HasSyncedChecker())
	fmt.Println("confirmed by the server:", len(inf.GetStore().List()))

	stop()
	<-done
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
}
