package factory_test

import (
	"errors"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer/factory"
)

// TestReload: a program that shuts its factory down makes another over the same lists at once.
// Without that, the error says so.
func TestReload(t *testing.T) {
	sim := simulator(t, configMap("web", "a"))
	db := temporary(t)
	for range 20 {
		f := informers.NewSharedInformerFactory(client(sim), 0)
		if err := factory.Wake(f, db, factory.Options{}, &corev1.ConfigMap{}); err != nil {
			t.Fatal(err)
		}
		stop := make(chan struct{})
		f.Start(stop)
		f.WaitForCacheSync(stop)
		other := informers.NewSharedInformerFactory(client(sim), 0)
		err := factory.Wake(other, db, factory.Options{}, &corev1.ConfigMap{})
		if !errors.Is(err, boltstore.ErrClaimed) || !strings.Contains(err.Error(), "Shutdown") {
			t.Errorf("while the first one runs: %v", err)
		}
		close(stop)
		f.Shutdown()
	}
}
