package contract

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/kubeapi"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/reflector"
)

const noPages = "a file does not apply a limit, and gives no continue tokens"

// notOfAFile are the cases in which a file differs, with the reasons.
var notOfAFile = map[string]string{
	"pages are of one state and count what is left":      noPages,
	"pages of a selection do not count what is left":     noPages,
	"pages of metadata only":                             noPages,
	"a page of an exact version":                         noPages,
	"the next page of a version in the future times out": noPages,
	"a next page with a version is refused":              noPages,
	"a list of nothing has a version and no items": "the version of a list is its source's, which moves with " +
		"the source's own changes",
	"a bookmark comes before a timeout of 3 s": "the same: it waits for a change elsewhere",
	"the definition of a custom resource":      "a file has no definitions unless it keeps their type",
	"the hash of a schema, under another one":  "a file has no schemas",
}

// TestFile checks package apifile with the cases of lists, watches and forms. Writes go
// to a simulator, reads to a file that informers keep.
func TestFile(t *testing.T) {
	f := startFile(t)
	t.Run("steady", func(t *testing.T) {
		for name, cases := range map[string][]testCase{"list": lists, "watch": watches, "codec": codecs} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				for _, tc := range cases {
					if notOfAFile[tc.name] != "" {
						continue
					}
					t.Run(tc.name, func(t *testing.T) {
						t.Parallel()
						tc.test(t, newFixture(t, f))
					})
				}
			})
		}
	})
}

// fileTarget is a server that writes to a simulator and reads from a file.
type fileTarget struct {
	target
	sim  *kubesim.Server
	db   *boltstore.DB
	url  string
	api  http.Handler
	mu   sync.Mutex
	last map[string]uint64 // version of the last write, by resource
}

func (f *fileTarget) Config() *rest.Config { return &rest.Config{Host: f.url, QPS: -1} }

func startFile(t *testing.T) *fileTarget {
	t.Helper()
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	db := keep(t, sim.RESTConfig(),
		kept{&corev1.Namespace{}, "", "namespaces", boltstore.ScopeCluster},
		kept{&corev1.ConfigMap{}, "", "configmaps", boltstore.ScopeNamespaced},
		kept{untyped("example.com/v1", "Widget"), "example.com", "widgets", boltstore.ScopeNamespaced})
	f := &fileTarget{sim: sim, db: db, api: apifile.New(db, apifile.Options{}), last: map[string]uint64{}}
	srv := httptest.NewServer(f)
	t.Cleanup(srv.Close)
	f.url = srv.URL
	return f
}

// kept is a type of version v1 that a file keeps.
type kept struct {
	example         runtime.Object
	group, resource string
	scope           boltstore.Scope
}

func untyped(apiVersion, kind string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
}

// keep keeps a server's objects of some types in a file until the test ends.
func keep(t *testing.T, server *rest.Config, types ...kept) *boltstore.DB {
	t.Helper()
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "contract.db"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		running.Wait()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	cfg := reflector.WrapConfig(server)
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range types {
		lw := cache.NewListWatchFromClient(cs.CoreV1().RESTClient(), k.resource, "", fields.Everything())
		if _, ok := k.example.(*unstructured.Unstructured); ok {
			of := dyn.Resource(schema.GroupVersionResource{Group: k.group, Version: "v1", Resource: k.resource})
			lw = &cache.ListWatch{
				ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
					return of.List(ctx, o)
				},
				WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
					return of.Watch(ctx, o)
				},
			}
		}
		inf, err := informer.NewSharedIndexInformer(db, lw, k.example, informer.Options{})
		if err == nil {
			err = inf.Store().Describe(boltstore.Description{Scope: k.scope})
		}
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { inf.RunWithContext(ctx) })
		if !cache.WaitForCacheSync(t.Context().Done(), inf.HasSynced) {
			t.Fatal("not synced")
		}
	}
	return db
}

// ServeHTTP writes one at a time, so that each write's version is known. A read waits
// until the file has the last write of its type, as a server has.
func (f *fileTarget) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource := kubeapi.ParsePath(r.URL.Path).Resource
	f.mu.Lock()
	if r.Method != http.MethodGet {
		defer f.mu.Unlock()
		before := f.sim.Revision()
		f.sim.ServeHTTP(w, r)
		if now := f.sim.Revision(); now != before {
			f.last[resource] = now
		}
		return
	}
	last := f.last[resource]
	f.mu.Unlock()
	if err := f.reach(r.Context(), resource, last); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	f.api.ServeHTTP(w, r)
}

func (f *fileTarget) reach(ctx context.Context, resource string, version uint64) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		states, err := f.db.States()
		if err != nil {
			return err
		}
		var changed <-chan struct{}
		for _, st := range states {
			if st.Source.Resource != resource {
				continue
			}
			changed = f.db.Committed(st.Source)
			view, err := f.db.View(st.Source)
			if err != nil {
				return err
			}
			at, _, err := view.Moment("")
			if err != nil {
				return err
			}
			if n, err := strconv.ParseUint(at.Version, 10, 64); err == nil && n >= version {
				return nil
			}
		}
		if changed == nil {
			return nil // the file has no such type
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
