package history_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/history"
	"github.com/kubewake/kubewake/informer/factory"
	"github.com/kubewake/kubewake/internal/exampletest"
	"github.com/kubewake/kubewake/reflector"
)

// keep runs a program that keeps config maps in the file. It returns a store to read
// them, and a function that ends the program.
func keep(cluster *exampletest.Cluster) (*boltstore.Store, func()) {
	db, err := boltstore.Open(cluster.Path(), boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	f := informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(reflector.WrapConfig(cluster.Config())), 0)
	if err := factory.Wake(f, db, factory.Options{}, &corev1.ConfigMap{}); err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	f.StartWithContext(ctx)
	f.WaitForCacheSync(ctx.Done())
	inf, err := factory.Informer(f, &corev1.ConfigMap{})
	if err != nil {
		log.Fatal(err)
	}
	return inf.Store(), func() {
		stop()
		f.Shutdown()
		if err := db.Close(); err != nil {
			log.Fatal(err)
		}
	}
}

// until waits until the store has n objects.
func until(s *boltstore.Store, n int) {
	for {
		changed, _ := s.Changed()
		if len(s.ListKeys()) == n {
			return
		}
		<-changed
	}
}

// The history of an object, from a program's own file. For the objects of the first list
// it begins with that list.
func ExampleOf() {
	cluster := exampletest.Start()
	defer cluster.End()
	store, end := keep(cluster)
	defer end()
	cluster.Create("a")
	until(store, 1)
	cluster.Delete("a")
	until(store, 0)

	for v, err := range history.Of(store, "web/a") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(v.Type, v.Key, v.Object.(*corev1.ConfigMap).Name)
	}
	// Output:
	// Added web/a a
	// Deleted web/a a
}

// An object as it was at a time, or as of a resourceVersion, although it is gone.
func ExampleAt() {
	cluster := exampletest.Start()
	defer cluster.End()
	store, end := keep(cluster)
	defer end()
	cluster.Create("a")
	until(store, 1)
	then := history.Moment{ResourceVersion: store.State().ResourceVersion}
	cluster.Delete("a")
	until(store, 0)

	was, err := history.At(store, "web/a", then)
	if err != nil { // history.ErrUnknown if the journal does not lead back to it
		log.Fatal(err)
	}
	fmt.Println("then:", was.(*corev1.ConfigMap).Name)
	_, there, err := store.GetByKey("web/a")
	fmt.Println("now:", there, err)
	// Output:
	// then: a
	// now: false <nil>
}
