// Other people's programs in small: the shapes in which they make their caches, each as
// client-go alone and over a file. It writes a line whenever what it reads has changed.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer/factory"
	"github.com/kubewake/kubewake/reflector"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	shape := flag.String("shape", "", "policy: an index by -zone; wrapped: a Reflector of its own")
	file := flag.String("db", "", "the cache's file; without it the program is client-go's alone")
	zone := flag.String("zone", "", "the policy")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	utilruntime.Must(err)
	client := kubernetes.NewForConfigOrDie(reflector.WrapConfig(cfg))
	has, last := wrapped, ""
	if *shape == "policy" {
		has = policy
	}
	read := has(ctx, client, *file, *zone)
	for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		keys := read()
		slices.Sort(keys)
		if now := fmt.Sprint(keys); now != last {
			fmt.Println("has", now)
			last = now
		}
	}
}

// policy reads by an index whose function closes over a setting, as descheduler's does.
func policy(ctx context.Context, client kubernetes.Interface, file, zone string) func() []string {
	f := informers.NewSharedInformerFactory(client, 0)
	if file != "" {
		utilruntime.Must(factory.WakeFile(f, factory.File{Path: file}, &corev1.ConfigMap{}))
	}
	inf := f.Core().V1().ConfigMaps().Informer()
	utilruntime.Must(inf.AddIndexers(cache.Indexers{"evict": func(obj any) ([]string, error) {
		return []string{fmt.Sprint(obj.(*corev1.ConfigMap).Data["data"] == zone)}, nil
	}}))
	f.StartWithContext(ctx)
	cache.WaitForCacheSync(ctx.Done(), inf.HasSynced)
	return func() []string {
		keys, err := inf.GetIndexer().IndexKeys("evict", "true")
		utilruntime.Must(err)
		return keys
	}
}

// counted is a ListerWatcher that a program wraps, as kube-state-metrics does for metrics.
// It has no other method.
type counted struct{ cache.ListerWatcher }

// wrapped runs a Reflector of the program's own.
func wrapped(ctx context.Context, client kubernetes.Interface, file, _ string) func() []string {
	rest := client.CoreV1().RESTClient()
	var lw cache.ListerWatcher = cache.NewListWatchFromClient(rest, "configmaps", "", fields.Everything())
	if file != "" {
		db, err := boltstore.Open(file, boltstore.Options{})
		utilruntime.Must(err)
		lw, err = reflector.NewStandalone(db, lw, &corev1.ConfigMap{}, reflector.Options{})
		utilruntime.Must(err)
	}
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	go cache.NewReflector(counted{lw}, &corev1.ConfigMap{}, store, 0).RunWithContext(ctx)
	return store.ListKeys
}
