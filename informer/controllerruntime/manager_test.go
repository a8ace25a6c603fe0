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

// started runs a manager until end is called.
func started(t *testing.T, mgr manager.Manager) (ctx context.Context, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	<-mgr.Elected()
	return ctx, func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// TestManagers: managers follow one another on a file. If a manager cannot be made, the
// file stays free. A second Start leaves the file to the first.
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
		ctx, end := started(t, mgr)
		if err := mgr.Start(ctx); err == nil {
			t.Error("it starts twice")
		}
		var maps corev1.ConfigMapList
		if err := sim.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: fmt.Sprint("in life ", life)}}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the cache has the new object", func() bool {
			err := mgr.GetClient().List(ctx, &maps, client.InNamespace("default"))
			return err == nil && len(maps.Items) == 3+life
		})
		end()
	}
}

// TestSecondStart: a second Start is an error, as with ctrl.NewManager, and leaves the
// file open for the first.
func TestSecondStart(t *testing.T) {
	sim := shop(t, "a")
	mgr, err := NewManager(sim.RESTConfig(), options(), File{Path: filepath.Join(t.TempDir(), "test.db")})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := started(t, mgr)
	var maps corev1.ConfigMapList
	eventually(t, "the cache answers", func() bool {
		return mgr.GetClient().List(ctx, &maps, client.InNamespace("default")) == nil
	})
	series := len(gathered(t))
	for range 2 {
		if err := mgr.Start(ctx); err == nil {
			t.Error("it starts twice")
		}
	}
	db := FileOf(mgr)
	if err := db.Err(); err != nil {
		t.Error(err)
	}
	if n := len(gathered(t)); n < series {
		t.Errorf("%d series are left of %d", n, series)
	}
	if err := sim.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
		Name: "later"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file has the new object", func() bool {
		s, err := db.View(boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped})
		return err == nil && s.State().Objects == 2
	})
	if all := db.Fallbacks(); len(all) > 0 {
		t.Errorf("not in the file: %+v", all)
	}
	end()
	if err := db.Err(); !errors.Is(err, boltstore.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
	if err := mgr.Start(t.Context()); err == nil {
		t.Error("it starts again")
	}
}
