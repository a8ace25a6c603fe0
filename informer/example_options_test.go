package informer_test

import (
	"context"
	"fmt"
	"log"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/exampletest"
	"github.com/kubewake/kubewake/reflector"
)

// synced runs an informer, and calls a function once it has synced.
func synced(inf *informer.Informer, fn func()) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); inf.RunWithContext(ctx) }()
	cache.WaitFor(ctx, "", inf.HasSyncedChecker())
	fn()
	stop()
	<-ended
}

// Indices are in the file, too. If each index function has a version, a new build of the
// program need not call it for all objects again.
func ExampleOptions_indexers() {
	cluster := exampletest.Start("a", "b")
	defer cluster.End()
	db, err := boltstore.Open(cluster.Path(), boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	inf, err := informer.NewSharedIndexInformer(db, configMaps(cluster.Config()), &corev1.ConfigMap{}, informer.Options{
		Indexers: cache.Indexers{
			cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
			"owner": func(obj any) ([]string, error) {
				return []string{obj.(*corev1.ConfigMap).Labels["owner"]}, nil
			},
		},
		IndexVersions: map[string]string{"owner": "1"}, // another one when the function changes
	})
	if err != nil {
		log.Fatal(err)
	}
	synced(inf, func() {
		keys, err := inf.GetIndexer().IndexKeys("owner", "") // those without the label
		fmt.Println(keys, err)
	})
	// Output:
	// [web/a web/b] <nil>
}

// A program at the far end of a slow or metered link starts without the link, and asks
// for few bytes when it is up.
func ExampleOptions_farLink() {
	cluster := exampletest.Start("a", "b")
	defer cluster.End()
	db, err := boltstore.Open(cluster.Path(), boltstore.Options{
		FlushInterval: time.Minute, // spares the flash; at most the changes of a minute are told again
	})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	inf, err := informer.NewSharedIndexInformer(db, configMaps(cluster.Config()), &corev1.ConfigMap{}, informer.Options{
		MaxStaleness: 24 * time.Hour, // without a link, a state confirmed within the day is enough
		Reflector:    reflector.Options{Confirm: reflector.ConfirmBookmark},
	})
	if err != nil {
		log.Fatal(err)
	}
	synced(inf, func() {
		_, known := inf.State().Age(time.Now())
		fmt.Println(len(inf.GetStore().List()), "objects, their age is known:", known)
	})
	// Output:
	// 2 objects, their age is known: true
}
