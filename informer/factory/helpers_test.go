package factory_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/waittest"
	"github.com/kubewake/kubewake/reflector"
)

// simulator is a server with the objects.
func simulator(t *testing.T, objects ...kubesim.Object) *kubesim.Server {
	t.Helper()
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	for _, o := range objects {
		if err := sim.Create(o); err != nil {
			t.Fatal(err)
		}
	}
	return sim
}

func wrapped(sim *kubesim.Server) *rest.Config {
	cfg := sim.RESTConfig()
	cfg.QPS = -1
	return reflector.WrapConfig(cfg)
}

func client(sim *kubesim.Server) kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(wrapped(sim))
}

func open(t *testing.T, path string) *boltstore.DB {
	return filetest.OpenAt(t, path, boltstore.Options{Durability: boltstore.DurabilityProcess})
}

func temporary(t *testing.T) *boltstore.DB { return open(t, filepath.Join(t.TempDir(), "test.db")) }

func pod(namespace, name string, labels ...string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: objectMeta(namespace, name, labels...)}
}

func configMap(namespace, name string, labels ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: objectMeta(namespace, name, labels...)}
}

// widget returns a widget in the server's form, without a Go type.
func widget(namespace, name string, size int64) kubesim.Object {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "size": size,
		"metadata": map[string]any{"namespace": namespace, "name": name},
	}}
}

func objectMeta(namespace, name string, labels ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if len(labels) > 0 {
		m.Labels = map[string]string{labels[0]: labels[1]}
	}
	return m
}

// sources are a file's sources, in kubectl's notation.
func sources(t *testing.T, db *boltstore.DB) (all []string) {
	t.Helper()
	states, err := db.States()
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range states {
		all = append(all, st.Source.String())
	}
	slices.Sort(all)
	return all
}

// calls are the calls of a handler.
type calls struct {
	mu   sync.Mutex
	told []string
}

func (c *calls) note(what string, obj any) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		panic(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, fmt.Sprintf("%s %T %s/%s", what, obj, m.GetNamespace(), m.GetName()))
}

func (c *calls) OnAdd(obj any, _ bool)   { c.note("add", obj) }
func (c *calls) OnUpdate(_, updated any) { c.note("update", updated) }
func (c *calls) OnDelete(obj any)        { c.note("delete", obj) }

// sorted are the calls so far, by name.
func (c *calls) sorted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.told))
}

var eventually = waittest.Eventually

// names are the names of objects, sorted.
func names[T metav1.Object](objects []T) (all []string) {
	for _, o := range objects {
		all = append(all, o.GetNamespace()+"/"+o.GetName())
	}
	slices.Sort(all)
	return all
}
