package controllerruntime

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// gadget is the Go type of the kind Widget.
type gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

func (g *gadget) DeepCopyObject() runtime.Object {
	return &gadget{g.TypeMeta, *g.ObjectMeta.DeepCopy()}
}

type gadgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []gadget `json:"items"`
}

func (l *gadgetList) DeepCopyObject() runtime.Object {
	c := &gadgetList{l.TypeMeta, l.ListMeta, nil}
	for _, g := range l.Items {
		c.Items = append(c.Items, *g.DeepCopyObject().(*gadget))
	}
	return c
}

// TestNamedKindWithoutALink: a scheme may give a Go type a kind of another name. It is mapped
// without a link, too.
func TestNamedKindWithoutALink(t *testing.T) {
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	s := runtime.NewScheme()
	s.AddKnownTypeWithName(gv.WithKind("Widget"), &gadget{})
	s.AddKnownTypeWithName(gv.WithKind("WidgetList"), &gadgetList{})
	metav1.AddToGroupVersion(s, gv)
	sim := shop(t)
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": "default", "name": "a"}}}
	if err := sim.Create(widget); err != nil {
		t.Fatal(err)
	}
	twoLives(t, sim, manager.Options{Scheme: s}, func(ctx context.Context, mgr manager.Manager, life int) {
		var widgets gadgetList
		if err := mgr.GetClient().List(ctx, &widgets); err != nil || len(widgets.Items) != 1 {
			t.Errorf("life %d: %d objects, %v", life, len(widgets.Items), err)
		}
	})
}

// TestHalfKindWithoutALink: a program may write half a kind into the object that it asks for an
// informer with, or another version's. It is mapped without a link, too.
func TestHalfKindWithoutALink(t *testing.T) {
	for _, says := range []metav1.TypeMeta{{Kind: "ConfigMap"}, {APIVersion: "apps/v1", Kind: "ConfigMap"}} {
		twoLives(t, shop(t, "a"), manager.Options{}, func(ctx context.Context, mgr manager.Manager, life int) {
			if _, err := mgr.GetCache().GetInformer(ctx, &corev1.ConfigMap{TypeMeta: says}); err != nil {
				t.Errorf("life %d: %v", life, err)
			}
		})
	}
}
