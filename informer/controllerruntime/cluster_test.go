package controllerruntime

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
)

// named are the options of a cluster's informers.
func named(cluster string) informer.Options {
	return informer.Options{Strict: true, MaxStaleness: -1, Reflector: reflector.Options{Cluster: cluster}}
}

// TestSecondCluster: a manager's file also has the cache of another cluster. Without a link to
// either server both wake from it, each with its own objects. The kinds of InMemory stay out.
func TestSecondCluster(t *testing.T) {
	near, far := shop(t, "a", "b"), shop(t, "c")
	if err := far.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
		Name: "secret"}}); err != nil {
		t.Fatal(err)
	}
	f := File{Path: filepath.Join(t.TempDir(), "test.db"), Informers: named(""),
		InMemory: []client.Object{&corev1.Secret{}}}
	for life := range 2 {
		mgr, err := NewManager(near.RESTConfig(), manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}}, f)
		if err != nil {
			t.Fatal(err)
		}
		other, err := NewCluster(mgr, far.RESTConfig(), named("far"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := started(t, mgr)
		ctx, enough := context.WithTimeout(ctx, time.Minute)
		var maps corev1.ConfigMapList
		for c, want := range map[cluster.Cluster]int{mgr: 2, other: 1} {
			if err := c.GetClient().List(ctx, &maps); err != nil || len(maps.Items) != want {
				t.Errorf("life %d: %d objects of %d, %v", life, len(maps.Items), want, err)
			}
		}
		if life == 0 {
			if err := other.GetClient().Get(ctx, client.ObjectKey{Namespace: "default", Name: "secret"},
				&corev1.Secret{}); err != nil {
				t.Error(err)
			}
		}
		sources, err := FileOf(mgr).Sources()
		if err != nil || len(sources) != 2 {
			t.Errorf("the file has %v, %v", sources, err)
		}
		enough()
		end()
		if err := other.GetClient().List(t.Context(), &maps); err == nil ||
			!strings.Contains(err.Error(), boltstore.ErrClosed.Error()) {
			t.Errorf("after the end: %d objects, %v", len(maps.Items), err)
		}
		for _, err := range []error{near.RefuseConnections(true), far.RefuseConnections(true)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestClusterMisused: a cluster that could not have its part of the file is an error.
func TestClusterMisused(t *testing.T) {
	sim := shop(t)
	mgr, err := NewManager(sim.RESTConfig(), options(),
		File{Path: filepath.Join(t.TempDir(), "test.db"), Informers: named("near")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, end := started(t, mgr); end() }()
	stock, err := manager.New(sim.RESTConfig(), options())
	if err != nil {
		t.Fatal(err)
	}
	own := func(o *cluster.Options) { o.Cache.NewInformer = informer.ForControllerRuntime(nil, informer.Options{}) }
	for says, make := range map[string]func() (cluster.Cluster, error){
		"NewManager":  func() (cluster.Cluster, error) { return NewCluster(stock, sim.RESTConfig(), named("far")) },
		"name":        func() (cluster.Cluster, error) { return NewCluster(mgr, sim.RESTConfig(), named("near")) },
		"Config":      func() (cluster.Cluster, error) { return NewCluster(mgr, nil, named("far")) },
		"NewInformer": func() (cluster.Cluster, error) { return NewCluster(mgr, sim.RESTConfig(), named("far"), own) },
	} {
		if c, err := make(); c != nil || err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("no word of %s: %v", says, err)
		}
	}
}

// TestClusterNames: without a name a host's path is the cluster's. Two clusters of one name are
// refused.
func TestClusterNames(t *testing.T) {
	host := shop(t).RESTConfig()
	at := func(path string) *rest.Config {
		cfg := rest.CopyConfig(host)
		cfg.Host += path
		return cfg
	}
	for _, c := range []struct {
		manager, cluster, name string
		refused                bool
	}{
		{"/k8s/clusters/a", "/k8s/clusters/b", "", false},
		{"/k8s/clusters/a", "/k8s/clusters/a/", "", true},
		{"/k8s/clusters/a", "", "k8s/clusters/a", true},
		{"/k8s/clusters/a", "", "", false},
		{"", "", "", true},
		{"", "", "b", false},
	} {
		mgr, err := NewManager(at(c.manager), manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}},
			File{Path: filepath.Join(t.TempDir(), "test.db")})
		if err != nil {
			t.Fatal(err)
		}
		_, err = NewCluster(mgr, at(c.cluster), informer.Options{Reflector: reflector.Options{Cluster: c.name}})
		if (err != nil) != c.refused {
			t.Errorf("%+v: %v", c, err)
		}
		_, end := started(t, mgr)
		end()
	}
}
