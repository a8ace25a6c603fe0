// Command prog indexes and transforms an object by functions that depend on
// how it was built, and gives them no version.
//
//	prog FILE write    takes the object from a server
//	prog FILE read     says what the file has, without a server
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// flag is set by -ldflags=-X.
var flag = "no flag"

func main() {
	if err := run(os.Args[1], os.Args[2] == "write"); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run(path string, write bool) (err error) {
	discard := klog.Background().V(9)
	db, err := boltstore.Open(path, boltstore.Options{Logger: &discard})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	offline := errors.New("no server")
	lw := &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			if !write {
				return nil, offline
			}
			cm := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "x", UID: "u", ResourceVersion: "1"}}
			return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []corev1.ConfigMap{cm}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			if !write {
				return nil, offline
			}
			return watch.NewFake(), nil
		},
	}
	inf, err := informer.NewSharedIndexInformer(db, lw, &corev1.ConfigMap{}, informer.Options{
		Reflector:     reflector.Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}},
		Indexers:      cache.Indexers{"build": func(any) ([]string, error) { return []string{build + ", " + flag}, nil }},
		Transform:     func(obj any) (any, error) { return obj, nil },
		ServeOutdated: true,
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	if write {
		ended := make(chan struct{})
		go func() { defer close(ended); inf.RunWithContext(ctx) }()
		if !cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
			cancel()
			return errors.New("it does not sync")
		}
		defer func() { cancel(); <-ended }()
	} else {
		defer cancel()
	}
	fmt.Printf("%q %q\n", inf.GetIndexer().ListIndexFuncValues("build"), inf.Store().Outdated())
	return nil
}
