package controllerruntime

import (
	"fmt"
	"math/rand/v2"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/kubewake/kubewake/internal/kubesim"
)

var (
	pods  = corev1.SchemeGroupVersion.WithKind("Pod")
	nodes = corev1.SchemeGroupVersion.WithKind("Node")
)

// randomKind is a kind in one form.
type randomKind struct {
	name    string
	gvk     schema.GroupVersionKind
	cluster bool
	one     func() client.Object
	list    func() client.ObjectList
}

var randomKinds = func() (all []*randomKind) {
	for _, k := range []*randomKind{
		{gvk: configMaps, one: func() client.Object {
			return &corev1.ConfigMap{}
		}, list: func() client.ObjectList { return &corev1.ConfigMapList{} }},
		{gvk: pods, one: func() client.Object {
			return &corev1.Pod{}
		}, list: func() client.ObjectList { return &corev1.PodList{} }},
		{gvk: nodes, cluster: true, one: func() client.Object {
			return &corev1.Node{}
		}, list: func() client.ObjectList { return &corev1.NodeList{} }},
		{gvk: widgets},
	} {
		if k.one != nil {
			k.name = "typed " + k.gvk.Kind
			all = append(all, k)
		}
		all = append(all,
			&randomKind{"unstructured " + k.gvk.Kind, k.gvk, k.cluster, func() client.Object {
				return anything(k.gvk)
			}, func() client.ObjectList { return list(k.gvk) }},
			&randomKind{"metadata of " + k.gvk.Kind, k.gvk, k.cluster, func() client.Object {
				return metadata(k.gvk)
			}, func() client.ObjectList { return metadataList(k.gvk) }})
	}
	return all
}()

func (p *program) kind(name string) *randomKind {
	return randomKinds[slices.IndexFunc(randomKinds, func(k *randomKind) bool { return k.name == name })]
}

// formOf is the name of the kind in the form of the object.
func formOf(o runtime.Object) string {
	gvk, err := apiutil.GVKForObject(o, scheme.Scheme)
	if err != nil {
		panic(err)
	}
	switch o.(type) {
	case *unstructured.Unstructured:
		return "unstructured " + gvk.Kind
	case *metav1.PartialObjectMetadata:
		return "metadata of " + gvk.Kind
	}
	return "typed " + gvk.Kind
}

// randomMapper maps the kinds without a request. Caches of several namespaces ask for kinds of
// lists, too.
func randomMapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, k := range randomKinds {
		scope := meta.RESTScopeNamespace
		if k.cluster {
			scope = meta.RESTScopeRoot
		}
		m.Add(k.gvk, scope)
		m.Add(k.gvk.GroupVersion().WithKind(k.gvk.Kind+"List"), scope)
	}
	return m
}

var (
	randomNamespaces = []string{"a", "b", "c"}
	randomApps       = []string{"x", "y", "z"}
)

// change changes an object at the server.
func (p *program) change(r *rand.Rand) {
	p.t.Helper()
	p.changes++
	m := metav1.ObjectMeta{Namespace: randomNamespaces[r.IntN(3)], Name: fmt.Sprint("o", r.IntN(4)),
		Annotations: map[string]string{"n": fmt.Sprint(p.changes)}}
	if r.IntN(4) > 0 {
		m.Labels = map[string]string{"app": randomApps[r.IntN(3)]}
	}
	if r.IntN(4) == 0 {
		m.Finalizers = []string{"example.com/wait"}
		m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "o1", UID: "1"}}
		m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "test",
			Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1"}}
	}
	data := fmt.Sprint(r.IntN(3))
	var o kubesim.Object
	switch r.IntN(4) {
	case 0:
		o = &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{"data": data}}
	case 1:
		o = &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{NodeName: "node" + data}}
	case 2:
		m.Namespace = ""
		o = &corev1.Node{ObjectMeta: m, Spec: corev1.NodeSpec{ProviderID: data}}
	case 3:
		w := anything(widgets)
		w.SetNamespace(m.Namespace)
		w.SetName(m.Name)
		w.SetLabels(m.Labels)
		w.SetAnnotations(m.Annotations)
		w.SetFinalizers(m.Finalizers)
		w.Object["spec"] = map[string]any{"data": data, "n": int64(p.changes), "none": nil, "list": []any{}}
		o = w
	}
	what := "delete"
	if r.IntN(3) > 0 || p.sim.Delete(o) != nil || r.IntN(3) == 0 { // or create it again
		what = "update"
		if p.sim.Update(o) != nil {
			what = "create"
			if err := p.sim.Create(o); err != nil {
				p.t.Fatal(err)
			}
		}
	}
	p.say(fmt.Sprintf("%s %T %s/%s", what, o, m.Namespace, m.Name), " ", m.Labels)
}
