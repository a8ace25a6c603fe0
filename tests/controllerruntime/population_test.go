package controllerruntime

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func anything(gvk schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	return u
}

func list(gvk schema.GroupVersionKind) *unstructured.UnstructuredList {
	l := &unstructured.UnstructuredList{}
	l.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	return l
}

func metadata(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	p := &metav1.PartialObjectMetadata{}
	p.SetGroupVersionKind(gvk)
	return p
}

func metadataList(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	p := &metav1.PartialObjectMetadataList{}
	p.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	return p
}

// population has a test's own objects on the server.
type population struct {
	t      *testing.T
	client client.Client
	mark   string // each object has it as its label "test"
	ns     [2]string
}

func newPopulation(t *testing.T) *population {
	c, err := client.New(server(t).Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p := &population{t: t, client: c}
	for i := range p.ns {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "caches-"}}
		p.create(ns)
		p.ns[i] = ns.Name
	}
	p.mark = p.ns[0]
	for _, name := range p.ns {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := c.Patch(t.Context(), ns,
			client.RawPatch("application/merge-patch+json",
				[]byte(`{"metadata":{"labels":{"test":"`+p.mark+`"}}}`))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 8 {
		meta := p.meta(i)
		p.create(&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"data": fmt.Sprint(i)}})
		w := anything(widgets)
		w.SetNamespace(meta.Namespace)
		w.SetName(meta.Name)
		w.SetLabels(meta.Labels)
		w.Object["spec"] = map[string]any{"n": int64(i), "f": 0.5, "list": []any{"a", int64(1), nil}}
		p.create(w)
	}
	return p
}

func (p *population) meta(i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: p.ns[i%2], Name: fmt.Sprint("o", i/2),
		Labels:      map[string]string{"test": p.mark, "app": fmt.Sprint("app", i%3)},
		Annotations: map[string]string{"note": strings.Repeat("n", i)}}
}

func (p *population) create(o client.Object) {
	p.t.Helper()
	if err := p.client.Create(p.t.Context(), o); err != nil {
		p.t.Fatal(err)
	}
}

// change updates, deletes and adds some objects of each kind.
func (p *population) change(round int) {
	p.t.Helper()
	for _, o := range []client.Object{&corev1.ConfigMap{}, anything(widgets)} {
		at := func(i int) client.ObjectKey {
			m := p.meta(i)
			return client.ObjectKey{Namespace: m.Namespace, Name: m.Name}
		}
		if err := p.client.Get(p.t.Context(), at(0), o); err != nil {
			p.t.Fatal(err)
		}
		o.SetAnnotations(map[string]string{"round": fmt.Sprint(round)})
		o.SetLabels(map[string]string{"test": p.mark, "app": fmt.Sprint("app", round)})
		if err := p.client.Update(p.t.Context(), o); err != nil {
			p.t.Fatal(err)
		}
		if err := p.client.Get(p.t.Context(), at(1+round), o); err != nil {
			p.t.Fatal(err)
		}
		if err := p.client.Delete(p.t.Context(), o); err != nil {
			p.t.Fatal(err)
		}
		o.SetName(fmt.Sprint("new", round))
		o.SetResourceVersion("")
		o.SetUID("")
		p.create(o)
	}
}
