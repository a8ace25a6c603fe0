package informer

import (
	"errors"
	"runtime"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// TestTransformWithoutVersion: the same build with another setting, with which the transform
// drops more or less, shows the objects as that leaves them. With the same setting nothing is
// listed.
func TestTransformWithoutVersion(t *testing.T) {
	w := newWorld(t)
	w.create("a", "x")
	drops := false
	transform := func(o any) (any, error) {
		if cm, ok := o.(*corev1.ConfigMap); ok && drops {
			cm.Data = nil
		}
		return o, nil
	}
	for life, now := range []bool{false, true, true, false} {
		same := life > 0 && drops == now
		drops = now
		w.sim.ResetRequests()
		l := w.live(byBookmark(Options{Transform: transform})).run().synced()
		obj, ok, err := l.inf.GetStore().GetByKey("default/a")
		if err != nil || !ok || (obj.(*corev1.ConfigMap).Data == nil) != drops {
			t.Errorf("life %d, drops %v: %v %v %v", life, drops, obj, ok, err)
		}
		for _, req := range w.sim.Requests() {
			if req.FullRead() && same {
				t.Errorf("life %d: the same setting read everything: %+v", life, req)
			}
		}
		l.end()
	}
}

// TestEffectOf: it tells settings apart for each kind of object, and a transform that fails or
// does something else each time is the same one in each life.
func TestEffectOf(t *testing.T) {
	for name, example := range map[string]k8sruntime.Object{
		"typed": &appsv1.Deployment{}, "metadata": &metav1.PartialObjectMetadata{},
		"unstructured": &unstructured.Unstructured{Object: map[string]any{"apiVersion": "a/v1", "kind": "B"}},
	} {
		strip := func(fields, annotation bool) cache.TransformFunc {
			return func(o any) (any, error) {
				m := o.(interface {
					SetManagedFields([]metav1.ManagedFieldsEntry)
					GetAnnotations() map[string]string
					SetAnnotations(map[string]string)
				})
				if fields {
					m.SetManagedFields(nil)
				}
				if all := m.GetAnnotations(); annotation {
					delete(all, corev1.LastAppliedConfigAnnotation)
					m.SetAnnotations(all)
				}
				return o, nil
			}
		}
		seen := map[string]bool{}
		for _, fields := range []bool{false, true} {
			for _, annotation := range []bool{false, true} {
				of := effectOf(strip(fields, annotation), example)
				if of == "" || seen[of] || of != effectOf(strip(fields, annotation), example) {
					t.Errorf("%s: fields %v, annotation %v: %q, also of another setting: %v", name, fields, annotation, of, seen[of])
				}
				seen[of] = true
			}
		}
	}
	for name, fn := range map[string]cache.TransformFunc{
		"fails":  func(any) (any, error) { return nil, errors.New("refused") },
		"panics": func(any) (any, error) { panic("refused") },
		"exits":  func(any) (any, error) { runtime.Goexit(); return nil, nil },
		"clock": func(any) (any, error) {
			return &corev1.ConfigMap{Data: map[string]string{"": time.Now().String()}}, nil
		},
	} {
		if a, b := effectOf(fn, &corev1.Pod{}), effectOf(fn, &corev1.Pod{}); a != b {
			t.Errorf("%s: %q, then %q", name, a, b)
		}
	}
}
