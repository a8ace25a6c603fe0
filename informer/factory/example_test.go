package factory_test

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/factory"
	"github.com/kubewake/kubewake/reflector"
)

// A factory wakes pods and config maps from the file, and keeps nodes in memory.
func ExampleWake() {
	run := func(cfg *rest.Config, db *boltstore.DB, stop chan struct{}) error {
		client, err := kubernetes.NewForConfig(reflector.WrapConfig(cfg))
		if err != nil {
			return err
		}
		f := informers.NewSharedInformerFactory(client, 10*time.Hour)
		o := factory.Options{Informer: informer.Options{MaxStaleness: time.Hour}}
		if err := factory.Wake(f, db, o, &corev1.Pod{}, &corev1.ConfigMap{}); err != nil {
			return err
		}
		nodes := f.Core().V1().Nodes().Lister()
		pods := f.Core().V1().Pods().Lister()
		f.Start(stop)
		f.WaitForCacheSync(stop)
		_, _ = nodes, pods
		return nil
	}
	_ = run
}
