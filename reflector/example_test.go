package reflector_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector"
)

// client-go's own informer starts with what the file has.
func ExampleNewStandalone() {
	run := func(ctx context.Context, cfg *rest.Config) error {
		db, err := boltstore.Open("cache.db", boltstore.Options{})
		if err != nil {
			return err
		}
		defer db.Close()
		client, err := kubernetes.NewForConfig(reflector.WrapConfig(cfg))
		if err != nil {
			return err
		}
		pods := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "pods", "", fields.Everything())
		lw, err := reflector.NewStandalone(db, pods, &corev1.Pod{}, reflector.Options{})
		if err != nil {
			return err
		}
		defer lw.Close()
		informer := cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
		informer.RunWithContext(ctx)
		return nil
	}
	_ = run
}
