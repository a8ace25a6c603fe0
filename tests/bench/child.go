package main

import (
	"cmp"
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/bench/measured"
)

type (
	kind       = measured.Kind
	mode       = measured.Mode
	spec       = measured.Spec
	report     = measured.Report
	liveReport = measured.LiveReport
)

const (
	kubewake = measured.Kubewake
	stock    = measured.Stock
	idle     = measured.Idle

	fill    = measured.Fill
	restart = measured.Restart
	live    = measured.Live
)

// child is a measured program, with kubewake's cache or client-go's.
func child() error {
	p, err := measured.Start()
	if err != nil {
		return err
	}
	cfg := p.Config()
	if p.Kind == kubewake {
		reflector.WrapConfig(cfg)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	if p.Kind == idle {
		if _, err := client.CoreV1().Pods("").List(context.Background(), metav1.ListOptions{Limit: 1}); err != nil {
			return err
		}
		time.Sleep(measured.Settle)
		return measured.Tell(report{Traffic: p.Wire.Read(), Memory: p.Samples.Read()})
	}
	if p.Types {
		return smallCaches(p, client)
	}
	c, err := open(p.Spec, client)
	if err != nil {
		return err
	}
	return p.Run(c)
}

// open makes the informer that the spec asks for, over all pods. The two list
// and watch with the same functions and have the same index.
func open(s spec, client kubernetes.Interface) (*measured.Cache, error) {
	lw := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Pods("").List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods("").Watch(ctx, o)
		},
	}, client)
	indexers := cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}
	began := time.Now()
	if s.Kind != kubewake {
		return measured.CacheOf(cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, indexers)), nil
	}
	db, err := boltstore.Open(s.DB, boltstore.Options{ObjectMemory: cmp.Or(s.Objects, objectMemory())})
	if err != nil {
		return nil, err
	}
	opened := time.Now()
	o := informer.Options{Indexers: indexers}
	o.Reflector.Confirm = reflector.Confirm(s.Confirm)
	o.Reflector.DecodeAll = s.Decoded
	inf, err := informer.NewSharedIndexInformer(db, lw, &corev1.Pod{}, o)
	if err != nil {
		return nil, err
	}
	c := measured.CacheOf(inf)
	c.Began, c.Opened, c.Size, c.Close = began, opened, db.Size, db.Close
	if s.Objects > 0 {
		c.Loaded = func() bool { return inf.Store().State().InMemory }
	}
	return c, nil
}
