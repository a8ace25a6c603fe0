package main

import (
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kubewake/kubewake/boltstore/codec"
)

// customs has the templates of custom resources.
const customs = "customs.yaml"

// payloads returns objects of each template as the codecs store them: typed ones as
// protobuf, unstructured ones and those of a custom Go type as msgpack. Each round through
// the templates makes other choices.
func payloads(rounds int) (out [][]byte, err error) {
	for round := range rounds {
		for i, name := range []string{"others.yaml", "workloads.yaml", "pods.yaml", customs} {
			docs, err := read(name)
			if err != nil {
				return nil, err
			}
			for j, doc := range docs {
				forms, err := newMaker(uint64(round), uint64(i<<8+j)).forms(doc, name == customs)
				if err != nil {
					return nil, fmt.Errorf("%s: %s: %w", name, doc["kind"], err)
				}
				out = append(out, forms...)
			}
		}
	}
	return out, nil
}

// forms makes an object of a template, and encodes it in each form that programs use.
func (m *maker) forms(template map[string]any, custom bool) (out [][]byte, err error) {
	u := &unstructured.Unstructured{Object: m.object(template).(map[string]any)}
	if err := m.complete(u, custom); err != nil {
		return nil, err
	}
	objs := []runtime.Object{u}
	switch gvk := u.GroupVersionKind(); {
	case !custom:
		o, err := scheme.Scheme.New(gvk)
		if err != nil {
			return nil, err
		}
		objs = append(objs, o)
	case gvk.Kind == "Database":
		objs = append(objs, &database{})
	}
	for _, o := range objs {
		if o != u {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o); err != nil {
				return nil, err
			}
			o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // as client-go leaves it
		}
		c, err := codec.For(o)
		if err != nil {
			return nil, err
		}
		b, err := c.Append(nil, o)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// managers made an object and wrote its status, by kind; "" is any program.
var managers = map[string][2]string{
	"Pod":           {"kube-controller-manager", "kubelet"},
	"ReplicaSet":    {"kube-controller-manager", "kube-controller-manager"},
	"EndpointSlice": {"kube-controller-manager"},
	"Event":         {"kubelet"},
	"Node":          {"kubelet", "kubelet"},
}

// complete adds what programs and the server add to a manifest.
func (m *maker) complete(u *unstructured.Unstructured, custom bool) error {
	if a := u.GetAnnotations(); a[lastApplied] != "" {
		b, err := json.Marshal(map[string]any{
			"apiVersion": u.GetAPIVersion(), "kind": u.GetKind(), "spec": u.Object["spec"],
			"metadata": map[string]any{"annotations": map[string]any{}, "name": u.GetName(),
				"namespace": u.GetNamespace()}})
		if err != nil {
			return err
		}
		a[lastApplied] = string(b) + "\n"
		u.SetAnnotations(a)
	}
	by := managers[u.GetKind()]
	if by[0] == "" {
		by[0] = m.of("helm", "kubectl-client-side-apply", "manager")
	}
	if by[1] == "" {
		by[1] = m.of("kube-controller-manager", "manager")
	}
	var entries []any
	for i, part := range []string{"", "status"} {
		if _, ok := u.Object["status"]; !ok && part == "status" {
			continue
		}
		fields, err := fieldsOf(u, part, custom)
		if err != nil {
			return err
		}
		e := map[string]any{"apiVersion": u.GetAPIVersion(), "fieldsType": "FieldsV1", "fieldsV1": fields,
			"manager": by[i], "operation": "Update", "time": m.fill("<time>")}
		if part != "" {
			e["subresource"] = part
		}
		entries = append(entries, e)
	}
	meta := u.Object["metadata"].(map[string]any)
	meta["managedFields"] = entries
	meta["uid"], meta["resourceVersion"] = m.fill("<uid>"), m.fill("<number>")
	meta["creationTimestamp"] = m.fill("<time>")
	return nil
}

const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

var (
	builtin = applyconfigurations.NewTypeConverter(scheme.Scheme)
	deduced = managedfields.NewDeducedTypeConverter()
	// parents are fields that nobody manages.
	parents = fieldpath.NewSet(fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"),
		fieldpath.MakePathOrDie("metadata"), fieldpath.MakePathOrDie("spec"), fieldpath.MakePathOrDie("status"))
)

// fieldsOf returns the managed fields of the status, or of the rest.
func fieldsOf(u *unstructured.Unstructured, part string, custom bool) (fields map[string]any, err error) {
	types := builtin
	if custom {
		types = deduced
	}
	none := map[string]any{"apiVersion": u.GetAPIVersion(), "kind": u.GetKind()}
	is := map[string]any{}
	for k, v := range u.Object {
		if none[k] != nil || (k == "status") == (part == "status") {
			is[k] = runtime.DeepCopyJSONValue(v)
		}
	}
	for _, k := range []string{"name", "namespace", "generation"} {
		unstructured.RemoveNestedField(is, "metadata", k)
	}
	from, err := types.ObjectToTyped(&unstructured.Unstructured{Object: none})
	if err != nil {
		return nil, err
	}
	to, err := types.ObjectToTyped(&unstructured.Unstructured{Object: is})
	if err != nil {
		return nil, err
	}
	diff, err := from.Compare(to)
	if err != nil {
		return nil, err
	}
	text, err := diff.Added.Union(diff.Modified).Difference(parents).ToJSON()
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	if status, ok := fields["f:status"].(map[string]any); ok && custom && status["f:conditions"] != nil {
		status["f:conditions"] = conditionFields(u)
	}
	return fields, nil
}

// conditionFields are the managed fields of a custom resource's conditions, a list by type.
func conditionFields(u *unstructured.Unstructured) map[string]any {
	fields := map[string]any{".": map[string]any{}}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		of := map[string]any{".": map[string]any{}}
		for k := range c.(map[string]any) {
			of["f:"+k] = map[string]any{}
		}
		fields[fmt.Sprintf(`k:{"type":%q}`, c.(map[string]any)["type"])] = of
	}
	return fields
}

// database is a custom resource in a program's own Go type.
type database struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		Version   string                 `json:"version,omitempty"`
		Image     string                 `json:"image,omitempty"`
		Replicas  *int32                 `json:"replicas,omitempty"`
		Enabled   bool                   `json:"enabled,omitempty"`
		Interval  metav1.Duration        `json:"interval,omitempty"`
		SecretRef corev1.SecretReference `json:"secretRef,omitempty"`
		Selector  *metav1.LabelSelector  `json:"selector,omitempty"`
	} `json:"spec,omitempty"`
	Status struct {
		ObservedGeneration int64              `json:"observedGeneration,omitempty"`
		Phase              string             `json:"phase,omitempty"`
		ReadyReplicas      int32              `json:"readyReplicas,omitempty"`
		Conditions         []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status,omitempty"`
}

func (d *database) DeepCopyObject() runtime.Object { c := *d; return &c }
