package factory_test

import (
	"context"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/factory"
	"github.com/kubewake/kubewake/internal/exampletest"
	"github.com/kubewake/kubewake/reflector"
)

// A factory wakes config maps and pods from the file, and keeps nodes in memory. In its
// second life the lister answers before any request.
func ExampleWake() {
	cluster := exampletest.Start("a", "b")
	defer cluster.End()

	life := func() {
		db, err := boltstore.Open(cluster.Path(), boltstore.Options{})
		if err != nil {
			log.Fatal(err)
		}
		defer db.Close()
		client := kubernetes.NewForConfigOrDie(reflector.WrapConfig(cluster.Config()))
		f := informers.NewSharedInformerFactory(client, 10*time.Hour)
		o := factory.Options{Informer: informer.Options{MaxStaleness: time.Hour}}
		if err := factory.Wake(f, db, o, &corev1.ConfigMap{}, &corev1.Pod{}); err != nil {
			log.Fatal(err)
		}
		configMaps := f.Core().V1().ConfigMaps().Lister().ConfigMaps("web")
		f.Core().V1().Nodes().Informer()
		got, err := configMaps.List(labels.Everything())
		fmt.Println("before any request:", len(got), err)

		ctx, stop := context.WithCancel(context.Background())
		f.StartWithContext(ctx)
		f.WaitForCacheSync(ctx.Done())
		got, err = configMaps.List(labels.Everything())
		fmt.Println("synced:", len(got), err)
		stop()
		f.Shutdown()
	}
	life()
	life()
	// Output:
	// before any request: 0 <nil>
	// synced: 2 <nil>
	// before any request: 2 <nil>
	// synced: 2 <nil>
}

// The short form, for a program that uses the file only for the factory: two lines of a
// controller change.
func ExampleWakeFile() {
	cluster := exampletest.Start("a", "b")
	defer cluster.End()

	client := kubernetes.NewForConfigOrDie(reflector.WrapConfig(cluster.Config()))
	f := informers.NewSharedInformerFactory(client, 10*time.Hour)
	if err := factory.WakeFile(f, factory.File{Path: cluster.Path()}, &corev1.ConfigMap{}); err != nil {
		log.Fatal(err)
	}
	configMaps := f.Core().V1().ConfigMaps().Lister()

	ctx, stop := context.WithCancel(context.Background())
	f.StartWithContext(ctx)
	f.WaitForCacheSync(ctx.Done())
	got, _ := configMaps.List(labels.Everything())
	fmt.Println(len(got))
	stop()
	f.Shutdown()
	// Output:
	// 2
}
