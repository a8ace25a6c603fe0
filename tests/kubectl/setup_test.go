// Package kubectl compares a file's answers with a real server's for the same objects:
// tables, objects and metadata.
package kubectl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/boltstore/live"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/apiserver"
)

const (
	patience = time.Minute
	shop     = "shop" // the namespace of the objects
)

// world is a server with objects in many states.
type world struct {
	*apiserver.Server
	dyn   dynamic.Interface
	types []resource
}

// resource is a type of the objects.
type resource struct {
	*meta.RESTMapping
	described boltstore.Description
}

// path is where the type is listed.
func (r *resource) path() string {
	p := "/apis/" + r.Resource.Group + "/" + r.Resource.Version
	if r.Resource.Group == "" {
		p = "/api/" + r.Resource.Version
	}
	if r.namespaced() {
		p += "/namespaces/" + shop
	}
	return p + "/" + r.Resource.Resource
}

func (r *resource) namespaced() bool { return r.Scope.Name() == meta.RESTScopeNameNamespace }

func startWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Server: apiserver.Start(t, apiserver.Options{NoAudit: true})}
	if err := w.InstallWidgets(t.Context()); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.dyn, err = dynamic.NewForConfig(w.Config()); err != nil {
		t.Fatal(err)
	}
	// The server makes these by itself, some after it is ready.
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			list, err := w.dyn.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).List(ctx,
				metav1.ListOptions{})
			return err == nil && len(list.Items) == 4, err
		})
	if err != nil {
		t.Fatal(err)
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": shop}}}
	w.create(t, w.mapper(t, namespace), namespace)
	columns := map[schema.GroupKind][]boltstore.Column{}
	for _, o := range readObjects(t, "definitions.yaml") {
		w.create(t, w.mapper(t, o), o)
		var definition struct {
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct{ AdditionalPrinterColumns []boltstore.Column }
			}
		}
		raw, err := json.Marshal(o)
		if err == nil {
			err = json.Unmarshal(raw, &definition)
		}
		if err != nil {
			t.Fatal(err)
		}
		spec := definition.Spec
		columns[schema.GroupKind{Group: spec.Group, Kind: spec.Names.Kind}] = spec.Versions[0].AdditionalPrinterColumns
	}
	objs := readObjects(t, "objects.yaml")
	made := len(objs)
	objs = append(objs, readObjects(t, "definitions.yaml")...) // these exist, and so do services of APIs
	objs = append(objs, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apiregistration.k8s.io/v1",
		"kind": "APIService"}})
	m := w.mapper(t, objs...)
	for i, o := range objs {
		if i < made {
			w.create(t, m, o)
		}
		gk := o.GroupVersionKind().GroupKind()
		if slices.ContainsFunc(w.types, func(r resource) bool { return r.GroupVersionKind.GroupKind() == gk }) {
			continue
		}
		mapping, err := m.RESTMapping(gk, o.GroupVersionKind().Version)
		if err != nil {
			t.Fatal(err)
		}
		w.types = append(w.types, resource{mapping, w.describe(t, mapping, columns[gk])})
	}
	return w
}

// describe returns the facts that the mirror would learn about a type.
func (w *world) describe(t *testing.T, m *meta.RESTMapping, columns []boltstore.Column) boltstore.Description {
	t.Helper()
	dc, err := discovery.NewDiscoveryClientForConfig(w.Config())
	if err != nil {
		t.Fatal(err)
	}
	list, err := dc.ServerResourcesForGroupVersion(m.Resource.GroupVersion().String())
	if err != nil {
		t.Fatal(err)
	}
	d := boltstore.Description{Scope: boltstore.ScopeCluster, Columns: columns}
	for _, r := range list.APIResources {
		if r.Name == m.Resource.Resource {
			d.Names, d.Categories = append(r.ShortNames, r.SingularName), r.Categories
			if r.Namespaced {
				d.Scope = boltstore.ScopeNamespaced
			}
		}
	}
	return d
}

// mapper waits until the server's discovery knows all kinds of the objects.
func (w *world) mapper(t *testing.T, objs ...*unstructured.Unstructured) meta.RESTMapper {
	t.Helper()
	dc, err := discovery.NewDiscoveryClientForConfig(w.Config())
	if err != nil {
		t.Fatal(err)
	}
	var m meta.RESTMapper
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true,
		func(context.Context) (bool, error) {
			groups, err := restmapper.GetAPIGroupResources(dc)
			if err != nil {
				return false, err
			}
			m = restmapper.NewDiscoveryRESTMapper(groups)
			for _, o := range objs {
				gvk := o.GroupVersionKind()
				if _, err := m.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
					return false, nil
				}
			}
			return true, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func readObjects(t *testing.T, name string) (objs []*unstructured.Unstructured) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in := yaml.NewYAMLOrJSONDecoder(f, 4096)
	for {
		var raw json.RawMessage
		if err := in.Decode(&raw); errors.Is(err, io.EOF) {
			return objs
		} else if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(raw); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		objs = append(objs, u)
	}
}

// create makes an object with its status. An object that a finalizer keeps is then
// deleted.
func (w *world) create(t *testing.T, m meta.RESTMapper, o *unstructured.Unstructured) {
	t.Helper()
	mapping, err := m.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
	if err != nil {
		t.Fatal(err)
	}
	var client dynamic.ResourceInterface = w.dyn.Resource(mapping.Resource)
	if o.GetNamespace() != "" {
		client = w.dyn.Resource(mapping.Resource).Namespace(o.GetNamespace())
	}
	made, err := client.Create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	if status, ok := o.Object["status"]; ok {
		patch, err := json.Marshal(map[string]any{"status": status})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Patch(t.Context(), o.GetName(), types.MergePatchType, patch, metav1.PatchOptions{},
			"status"); err != nil {
			t.Fatalf("status of %s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	if len(made.GetFinalizers()) > 0 {
		if err := client.Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
	}
}

// mirror keeps all types of the world in a file, in a form, and serves that by a URL and
// by the socket beside it.
func (w *world) mirror(t *testing.T, form boltstore.Form) (url, path string) {
	t.Helper()
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "mirror.db"), boltstore.Options{})
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
	var informers []*informer.Informer
	for _, r := range w.types {
		lw, example := w.listWatch(t, r, form)
		inf, err := informer.NewSharedIndexInformer(db, lw, example, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := inf.Store().Describe(r.described); err != nil {
			t.Fatal(err)
		}
		running.Go(func() { inf.RunWithContext(ctx) })
		informers = append(informers, inf)
	}
	for _, inf := range informers {
		if !cache.WaitForCacheSync(t.Context().Done(), inf.HasSynced) {
			t.Fatal("not synced")
		}
	}
	srv := httptest.NewServer(apifile.New(db, apifile.Options{Secrets: true}))
	t.Cleanup(srv.Close)
	socket, err := live.Serve(db, live.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := socket.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv.URL, db.Path()
}

func (w *world) listWatch(t *testing.T, r resource, form boltstore.Form) (cache.ListerWatcher, runtime.Object) {
	t.Helper()
	cfg := reflector.WrapConfig(w.Config())
	custom := !scheme.Scheme.Recognizes(r.GroupVersionKind)
	switch {
	case form == boltstore.FormMetadata:
		client, err := metadata.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		o := &metav1.PartialObjectMetadata{}
		o.SetGroupVersionKind(r.GroupVersionKind)
		return listWatchOf(client.Resource(r.Resource)), o
	case form == boltstore.FormUnstructured || custom:
		client, err := dynamic.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(r.GroupVersionKind)
		return listWatchOf(client.Resource(r.Resource)), u
	}
	gv := r.GroupVersionKind.GroupVersion()
	cfg.GroupVersion, cfg.APIPath = &gv, "/apis"
	if gv.Group == "" {
		cfg.APIPath = "/api"
	}
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	obj, err := scheme.Scheme.New(r.GroupVersionKind)
	if err != nil {
		t.Fatal(err)
	}
	return cache.NewListWatchFromClient(client, r.Resource.Resource, "", fields.Everything()), obj
}

// lists is a client of one resource.
type lists[L runtime.Object] interface {
	List(ctx context.Context, o metav1.ListOptions) (L, error)
	Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
}

func listWatchOf[L runtime.Object](of lists[L]) cache.ListerWatcher {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return of.List(ctx, o)
		},
		WatchFuncWithContext: of.Watch,
	}
}

// answer is a server's answer to a request.
type answer struct {
	code  int
	media string
	body  []byte
}

// ask sends a GET.
func ask(t *testing.T, client *http.Client, url, accept string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header.Get("Content-Type"), body}
}

// both asks the server and the file the same question. Since ages move on, the server is
// asked before and after the file, until its two answers agree.
func (w *world) both(t *testing.T, client *http.Client, file, path, accept string) (server, ours answer) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		before := ask(t, client, w.Config().Host+path, accept)
		ours = ask(t, http.DefaultClient, file+path, accept)
		server = ask(t, client, w.Config().Host+path, accept)
		if bytes.Equal(before.body, server.body) {
			return server, ours
		}
		if time.Now().After(end) {
			t.Fatalf("%s: the server never says the same twice", path)
		}
	}
}
