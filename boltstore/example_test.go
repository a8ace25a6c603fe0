package boltstore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer/factory"
	"github.com/kubewake/kubewake/internal/exampletest"
	"github.com/kubewake/kubewake/reflector"
)

// fill runs a program that keeps the cluster's config maps in the file.
func fill(cluster *exampletest.Cluster) {
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
	stop()
	f.Shutdown()
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
}

// One process has a file open. Another one waits for it, and then gives up.
func ExampleOpen() {
	cluster := exampletest.Start()
	defer cluster.End()

	db, err := boltstore.Open(cluster.Path(), boltstore.Options{
		LockTimeout:  time.Minute, // the program before this one may still be ending
		ObjectMemory: 64 << 20,    // for reads as fast as client-go's
	})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close() // after all informers have ended

	_, err = boltstore.Open(cluster.Path(), boltstore.Options{LockTimeout: -1})
	fmt.Println(errors.Is(err, boltstore.ErrLocked))
	// Output:
	// true
}

// A tool reads a file that a program has written. It does not keep any program from
// starting.
func ExampleDB_View() {
	cluster := exampletest.Start("a", "b")
	defer cluster.End()
	fill(cluster)

	db, err := boltstore.Open(cluster.Path(), boltstore.Options{ReadOnly: true, GiveWay: true})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	sources, err := db.States()
	if err != nil {
		log.Fatal(err)
	}
	for _, state := range sources {
		fmt.Println(state.Source, state.Objects)
		store, err := db.View(state.Source)
		if err != nil {
			log.Fatal(err)
		}
		objects, err := store.ListErr()
		if err != nil { // boltstore.ErrTaken if a program has written meanwhile
			log.Fatal(err)
		}
		for _, obj := range objects {
			fmt.Println(obj.(*corev1.ConfigMap).Name)
		}
	}
	// Output:
	// configmaps/v1 2
	// a
	// b
}
