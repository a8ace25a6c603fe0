// Sqlite is a program that the benchmark measures beside kubewake: it keeps pods in a
// SQLite database, as programs do that avoid an informer's memory.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/tests/bench/measured"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0) // as a crash would: nothing is closed that run has not
}

func run() error {
	p, err := measured.Start()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(p.Config())
	if err != nil {
		return err
	}
	began := time.Now()
	s, err := openStore(p.DB, podsOf(client))
	if err != nil {
		return err
	}
	return p.Run(&measured.Cache{
		Began: began, Opened: time.Now(), Size: s.size, Close: s.db.Close, Synced: s.synced,
		Has: func(key string) (bool, error) {
			pod, err := s.get(key)
			return pod != nil, err
		},
		List: s.list,
		Handle: func(h cache.ResourceEventHandler) error {
			s.handler = h
			return nil
		},
		Run: func(ctx context.Context) {
			if err := s.run(ctx); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		},
	})
}

// api makes a store's requests to the server.
type api struct {
	list  func(context.Context, metav1.ListOptions) (*corev1.PodList, error)
	watch func(context.Context, metav1.ListOptions) (watch.Interface, error)
}

func podsOf(client kubernetes.Interface) api {
	pods := client.CoreV1().Pods("")
	return api{pods.List, pods.Watch}
}
