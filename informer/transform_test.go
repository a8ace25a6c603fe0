package informer

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
)

// TestTransformInPlace: a transform has the objects of the watch to itself, even while
// the source catches up. Otherwise the race detector would report it, and with
// unstructured objects Go would end the program.
func TestTransformInPlace(t *testing.T) {
	w := newWorld(t)
	w.create("o")
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	o := Options{TransformVersion: "1", Transform: func(obj any) (any, error) {
		for i := range 20 {
			obj.(metav1.Object).SetAnnotations(map[string]string{"seen": fmt.Sprint(i)})
		}
		return obj, nil
	}}
	for life := range 3 {
		m := w.managed()
		dyn := dynamic.NewForConfigOrDie(w.config()).Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
		inf, err := NewSharedIndexInformer(m.db, like(dyn.List, dyn.Watch), u, o)
		if err != nil {
			t.Fatal(err)
		}
		end := start(t, inf)
		eventually(t, "synced", inf.HasSynced)
		if n := len(inf.GetStore().List()); n != 1+30*life {
			t.Errorf("life %d: %d objects", life, n)
		}
		end()
		if err := m.db.Close(); err != nil {
			t.Fatal(err)
		}
		for i := range 30 {
			w.create(fmt.Sprint("o", life, "-", i))
		}
	}
}
