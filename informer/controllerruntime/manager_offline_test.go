package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestManagerWithoutALink: while the server refuses connections or is silent, a manager
// still maps the kinds that are in the file, and so reads them. Once the server answers
// that it has no such kind, that holds.
func TestManagerWithoutALink(t *testing.T) {
	stock := manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}} // without a mapper
	for name, fail := range map[string]func(t *testing.T, sim *kubesim.Server){
		"refused": func(t *testing.T, sim *kubesim.Server) {
			if err := sim.RefuseConnections(true); err != nil {
				t.Fatal(err)
			}
		},
		"silent": func(t *testing.T, sim *kubesim.Server) {
			sim.Stall(true)
			t.Cleanup(func() { sim.Stall(false) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			sim := shop(t, "a", "b")
			f := File{Path: filepath.Join(t.TempDir(), "test.db"), Informers: informer.Options{MaxStaleness: -1}}
			live := func(read func(ctx context.Context, mgr manager.Manager)) {
				mgr, err := NewManager(sim.RESTConfig(), stock, f)
				if err != nil {
					t.Fatal(err)
				}
				ctx, end := started(t, mgr)
				read(ctx, mgr)
				end()
			}
			list := func(ctx context.Context, mgr manager.Manager) {
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				var maps corev1.ConfigMapList
				if err := mgr.GetClient().List(ctx, &maps, client.InNamespace("default")); err != nil ||
					len(maps.Items) != 2 {
					t.Errorf("%d objects, %v", len(maps.Items), err)
				}
			}
			live(list)
			fail(t, sim)
			live(func(ctx context.Context, mgr manager.Manager) {
				list(ctx, mgr)
				if name == "silent" {
					return // only the server can say
				}
				if _, err := mgr.GetRESTMapper().RESTMapping(schema.GroupKind{Group: "apps", Kind: "Deployment"},
					"v1"); err == nil {
					t.Error("a kind that the file does not have is mapped")
				}
			})
		})
	}
}

// twoLives has a manager use a file with a link, and another one without it. use is told the
// life.
func twoLives(t *testing.T, sim *kubesim.Server, o manager.Options,
	use func(ctx context.Context, mgr manager.Manager, life int)) {
	t.Helper()
	livesOf(t, sim, sim.RESTConfig(), o, use)
}

// livesOf is twoLives with a config of the server.
func livesOf(t *testing.T, sim *kubesim.Server, cfg *rest.Config, o manager.Options,
	use func(ctx context.Context, mgr manager.Manager, life int)) {
	t.Helper()
	o.Metrics = metricsserver.Options{BindAddress: "0"}
	f := File{Path: filepath.Join(t.TempDir(), "test.db"), Informers: informer.Options{MaxStaleness: -1}}
	for life := range 2 {
		mgr, err := NewManager(cfg, o, f)
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := started(t, mgr)
		ctx, enough := context.WithTimeout(ctx, time.Minute)
		use(ctx, mgr, life)
		enough()
		end()
		if err := sim.RefuseConnections(true); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNamespacesWithoutALink: the cache of several namespaces asks how the kind of a list is
// mapped. That is known without a link, too.
func TestNamespacesWithoutALink(t *testing.T) {
	o := manager.Options{Cache: cache.Options{DefaultNamespaces: map[string]cache.Config{"default": {}, "other": {}}}}
	twoLives(t, shop(t, "a", "b"), o, func(ctx context.Context, mgr manager.Manager, life int) {
		var maps corev1.ConfigMapList
		if err := mgr.GetClient().List(ctx, &maps); err != nil || len(maps.Items) != 2 {
			t.Errorf("life %d: %d objects, %v", life, len(maps.Items), err)
		}
	})
}

// TestPathWithoutALink: the host's path, as Rancher's and Karmada's, is the cluster's name in the
// file, unless it has another.
func TestPathWithoutALink(t *testing.T) {
	for _, path := range []string{"/k8s/clusters/c-1", "/apis/cluster.karmada.io/v1alpha1/clusters/m1/proxy/"} {
		sim := shop(t, "a", "b")
		to, err := url.Parse(sim.URL())
		if err != nil {
			t.Fatal(err)
		}
		proxy := httputil.NewSingleHostReverseProxy(to)
		if proxy.Transport, err = rest.TransportFor(sim.RESTConfig()); err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(http.StripPrefix(strings.TrimSuffix(path, "/"), proxy))
		t.Cleanup(srv.Close)
		cfg := &rest.Config{Host: srv.URL + path}
		livesOf(t, sim, cfg, manager.Options{}, func(ctx context.Context, mgr manager.Manager, life int) {
			var maps corev1.ConfigMapList
			if err := mgr.GetClient().List(ctx, &maps, client.InNamespace("default")); err != nil ||
				len(maps.Items) != 2 {
				t.Errorf("%s, life %d: %d objects, %v", path, life, len(maps.Items), err)
			}
		})
	}
}

// TestEmptyKindWithoutALink: a kind is mapped without a link also if the file has no
// object of it, in each form.
func TestEmptyKindWithoutALink(t *testing.T) {
	unstructuredList := &unstructured.UnstructuredList{}
	unstructuredList.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceList"))
	metadataList := &metav1.PartialObjectMetadataList{}
	metadataList.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceList"))
	for name, list := range map[string]client.ObjectList{
		"never an object":  &corev1.ServiceList{},
		"the last deleted": &corev1.ConfigMapList{},
		"cluster scope":    &corev1.NodeList{},
		"unstructured":     unstructuredList,
		"metadata":         metadataList,
	} {
		t.Run(name, func(t *testing.T) {
			sim := shop(t, "a")
			twoLives(t, sim, manager.Options{}, func(ctx context.Context, mgr manager.Manager, life int) {
				if err := mgr.GetCache().List(ctx, list); err != nil {
					t.Errorf("life %d: %v", life, err)
				}
				if life == 0 && name == "the last deleted" {
					if err := sim.Delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
						Name: "a"}}); err != nil {
						t.Fatal(err)
					}
					eventually(t, "the delete is known", func() bool {
						return mgr.GetCache().List(ctx, list) == nil && meta.LenList(list) == 0
					})
				}
			})
		})
	}
}

// TestVersionsInTheFile: without a version, a kind is mapped to the most stable version
// that the file has.
func TestVersionsInTheFile(t *testing.T) {
	var states []boltstore.State
	for _, v := range []string{"v1beta1", "v2", "v1"} {
		states = append(states, boltstore.State{
			Source:     boltstore.Source{Group: "example.com", Version: v, Resource: "crates"},
			APIVersion: "example.com/" + v, Kind: "Crate", Scope: boltstore.ScopeCluster,
		})
	}
	m := mapperOf(states, "")
	kind := schema.GroupKind{Group: "example.com", Kind: "Crate"}
	if to, err := m.RESTMapping(kind); err != nil || to.Resource.Version != "v2" {
		t.Errorf("no version: %+v, %v", to, err)
	}
	if to, err := m.RESTMapping(kind, "v1beta1"); err != nil || to.Resource.Version != "v1beta1" {
		t.Errorf("v1beta1: %+v, %v", to, err)
	}
	if to, err := m.RESTMapping(kind, "v3"); err == nil {
		t.Errorf("v3: %+v", to)
	}
}

// TestRedefinedInTheFile: a custom resource that was defined again, with another scope or
// plural, may have left sources in the file. The one that was confirmed last counts. If a
// clock that restarts at boot has dated them, the server's versions say which one that is.
// Sources of another cluster do not count.
func TestRedefinedInTheFile(t *testing.T) {
	state := func(resource, namespace string, scope boltstore.Scope, confirmed int64) boltstore.State {
		return boltstore.State{Source: boltstore.Source{Group: "example.com", Version: "v1", Resource: resource,
			Namespace: namespace},
			APIVersion: "example.com/v1", Kind: "Crate", Scope: scope, Confirmed: time.Unix(confirmed, 0)}
	}
	in := func(cluster string, st boltstore.State) boltstore.State { st.Source.Cluster = cluster; return st }
	at := func(version string, st boltstore.State) boltstore.State { st.ResourceVersion = version; return st }
	for name, states := range map[string][]boltstore.State{
		"clock": {at("900", state("boxes", "", boltstore.ScopeNamespaced, 2)),
			at("1000", state("crates", "", boltstore.ScopeCluster, 1))},
		"other": {state("crates", "", boltstore.ScopeCluster, 1),
			in("other", state("boxes", "", boltstore.ScopeNamespaced, 2))},
		"scope": {state("crates", "", boltstore.ScopeCluster, 2),
			state("crates", "web", boltstore.ScopeNamespaced, 1)},
		"plural": {state("boxes", "", boltstore.ScopeNamespaced, 1), state("crates", "", boltstore.ScopeCluster, 2),
			state("crates-old", "", boltstore.ScopeNamespaced, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			to, err := mapperOf(states, "").RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Crate"}, "v1")
			if err != nil || to.Resource.Resource != "crates" || to.Scope.Name() != meta.RESTScopeNameRoot {
				t.Errorf("%+v, %v", to, err)
			}
		})
	}
}

// TestServerHasNoSuchKind: the server's word that a kind is gone holds, whatever the file
// has. With a mapper of its own, a manager does not ask the file.
func TestServerHasNoSuchKind(t *testing.T) {
	kind := schema.GroupKind{Kind: "ConfigMap"}
	m := &wakingMapper{file: kinds(t), server: noKinds{}, groups: allGroups{}}
	if _, err := m.RESTMapping(kind, "v1"); !meta.IsNoMatchError(err) {
		t.Errorf("the error is %v", err)
	}
	o := options()
	given := o.MapperProvider
	var own meta.RESTMapper
	o.MapperProvider = func(cfg *rest.Config, c *http.Client) (m meta.RESTMapper, err error) {
		own, err = given(cfg, c)
		return own, err
	}
	mgr, err := NewManager(shop(t).RESTConfig(), o, File{Path: filepath.Join(t.TempDir(), "test.db")})
	if err != nil {
		t.Fatal(err)
	}
	if mgr.GetRESTMapper() != own {
		t.Error("the given mapper is not used")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := mgr.Start(ctx); err != nil {
		t.Error(err)
	}
}

// TestKindOfAServerThatIsAway: a kind of an API server that is down behind a live one is
// mapped as in the file. The live one lists its group without kinds.
func TestKindOfAServerThatIsAway(t *testing.T) {
	sim := shop(t)
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": "default", "name": "a"}}}
	if err := sim.Create(widget); err != nil {
		t.Fatal(err)
	}
	f := File{Path: filepath.Join(t.TempDir(), "test.db"), Informers: informer.Options{MaxStaleness: -1}}
	for range 2 {
		mgr, err := NewManager(sim.RESTConfig(), manager.Options{Metrics: metricsserver.Options{BindAddress: "0"}}, f)
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := started(t, mgr)
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "WidgetList"})
		if err := mgr.GetCache().List(ctx, list); err != nil || len(list.Items) != 1 {
			t.Errorf("%d objects, %v", len(list.Items), err)
		}
		end()
		for path, groups := range map[string]string{
			"/api":  `{"versions":[{"version":"v1","freshness":"Current","resources":[{"resource":"configmaps","scope":"Namespaced","singularResource":"configmap","verbs":["list"],"responseKind":{"group":"","version":"v1","kind":"ConfigMap"}}]}]}`,
			"/apis": `{"metadata":{"name":"example.com"},"versions":[{"version":"v1","freshness":"Stale"}]}`,
		} {
			sim.FailNext(func(r *http.Request) bool {
				return r.URL.Path == path
			}, 1<<30, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
				fmt.Fprintf(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[%s]}`, groups)
			})
		}
		sim.FailNext(func(r *http.Request) bool {
			return strings.HasPrefix(r.URL.Path, "/apis/")
		}, 1<<30, func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "service unavailable", http.StatusServiceUnavailable)
		})
	}
}

// TestSilentServer: a server that is silent for hours is not asked again before it has
// answered, so that questions do not add up.
func TestSilentServer(t *testing.T) {
	silent := &silentKinds{answer: make(chan struct{})}
	m := &wakingMapper{file: kinds(t), server: silent, groups: allGroups{}}
	ask := func() {
		t.Helper()
		if to, err := m.RESTMapping(schema.GroupKind{Kind: "ConfigMap"}, "v1"); err != nil ||
			to.Resource.Resource != "configmaps" {
			t.Errorf("%+v, %v", to, err)
		}
		long := time.Now().Add(-time.Hour)
		m.failed.Store(&long)
	}
	for range 5 {
		ask()
	}
	if n := silent.asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	close(silent.answer)
	eventually(t, "the answer", func() bool { return m.asking.Load() == 0 })
	ask()
	if n := silent.asked.Load(); n != 2 {
		t.Errorf("after an answer: asked %d times", n)
	}
}

// TestQuestionsEnd: a question about kinds does not wait for ever. The RESTMapper answers no
// other one meanwhile.
func TestQuestionsEnd(t *testing.T) {
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	var o manager.Options
	wake(&o.MapperProvider, &o.Cache, schemeOf(o.Cache, o.Scheme), db, "")
	var asked, endless atomic.Int64
	m, err := o.MapperProvider(&rest.Config{Host: "http://example.com"},
		&http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			asked.Add(1)
			if _, ok := r.Context().Deadline(); !ok {
				endless.Add(1)
			}
			return nil, errors.New("no link")
		})})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.RESTMapping(schema.GroupKind{Kind: "ConfigMap"}, "v1"); err == nil || asked.Load() == 0 ||
		endless.Load() > 0 {
		t.Errorf("%d requests, %d without a deadline, %v", asked.Load(), endless.Load(), err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// silentKinds is a server that does not answer for a while.
type silentKinds struct {
	meta.RESTMapper
	asked  atomic.Int64
	answer chan struct{}
}

func (s *silentKinds) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	s.asked.Add(1)
	<-s.answer
	return nil, errors.New("no link")
}

func kinds(t *testing.T) meta.RESTMapper {
	t.Helper()
	m, err := options().MapperProvider(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// noKinds is a server without kinds.
type noKinds struct{ meta.RESTMapper }

func (noKinds) RESTMapping(gk schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	return nil, &meta.NoKindMatchError{GroupKind: gk}
}

// allGroups is a server that can tell the kinds of all its groups.
type allGroups struct {
	discovery.AggregatedDiscoveryInterface
}

func (allGroups) GroupsAndMaybeResources() (
	*metav1.APIGroupList, map[schema.GroupVersion]*metav1.APIResourceList, map[schema.GroupVersion]error, error,
) {
	return nil, nil, nil, nil
}
