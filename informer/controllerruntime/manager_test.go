package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kubewake/kubewake/boltstore"
)

func options() manager.Options {
	return manager.Options{
		Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			m := meta.NewDefaultRESTMapper(nil)
			m.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
			return m, nil
		},
	}
}

// TestManagers: managers follow one another on a file. A manager that cannot be made
// leaves the file free, and a second Start leaves it to the first.
func TestManagers(t *testing.T) {
	sim := shop(t, "a", "b")
	f := File{Path: filepath.Join(t.TempDir(), "test.db")}
	if _, err := NewManager(nil, options(), f); err == nil {
		t.Error("a manager without a config")
	}
	for life := range 2 {
		mgr, err := NewManager(sim.RESTConfig(), options(), f)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := NewManager(sim.RESTConfig(), options(), f); !errors.Is(err, boltstore.ErrLocked) {
			t.Errorf("a second manager: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- mgr.Start(ctx) }()
		<-mgr.Elected()
		if err := mgr.Start(ctx); err == nil {
			t.Error("it starts twice")
		}
		var maps corev1.ConfigMapList
		if err := sim.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("in life ", life)}}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the cache has the new object", func() bool {
			err := mgr.GetClient().List(ctx, &maps, client.InNamespace("default"))
			return err == nil && len(maps.Items) == 3+life
		})
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
