// Bench is a program that the benchmark in tests/bench measures beside kubewake: it keeps
// pods in a cache of controller-runtime's. It is here because only this module depends on
// controller-runtime.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewake/kubewake/tests/bench/measured"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	p, err := measured.Start()
	if err != nil {
		return err
	}
	cfg := p.Config()
	cfg.ContentConfig = rest.ContentConfig{} // controller-runtime has its own
	pods, err := cache.New(cfg, cache.Options{})
	if err != nil {
		return err
	}
	ctx := context.Background()
	inf, err := pods.GetInformer(ctx, &corev1.Pod{})
	if err != nil {
		return err
	}
	return p.Run(&measured.Cache{
		Has: func(key string) (bool, error) {
			namespace, name, _ := strings.Cut(key, "/")
			err := pods.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &corev1.Pod{})
			return err == nil, client.IgnoreNotFound(err)
		},
		List: func(namespace string, pod func(metav1.Object)) error {
			var list corev1.PodList
			if err := pods.List(ctx, &list, client.InNamespace(namespace)); err != nil {
				return err
			}
			for i := range list.Items {
				pod(&list.Items[i])
			}
			return nil
		},
		Handle: func(h toolscache.ResourceEventHandler) error {
			_, err := inf.AddEventHandler(h)
			return err
		},
		Run: func(ctx context.Context) {
			if err := pods.Start(ctx); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		},
		Synced: inf.(toolscache.SharedIndexInformer).HasSyncedChecker().Done(),
	})
}
