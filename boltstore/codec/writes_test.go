package codec_test

import (
	"reflect"
	"sync"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var quantityType = reflect.TypeFor[resource.Quantity]()

// asDecoded makes all quantities as a decoder returns them: without a text.
func asDecoded(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			return asDecoded(v.Elem())
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			n += asDecoded(v.Index(i))
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			e := reflect.New(v.Type().Elem()).Elem()
			e.Set(v.MapIndex(k))
			n += asDecoded(e)
			v.SetMapIndex(k, e)
		}
	case reflect.Struct:
		if v.Type() == quantityType {
			if v.CanSet() {
				v.Set(reflect.ValueOf(*resource.NewMilliQuantity(1500, resource.DecimalSI)))
				n++
			}
			return n
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				n += asDecoded(v.Field(i))
			}
		}
	}
	return n
}

// TestAppendWritesNothing: encoding leaves each object as it was, even its fields that
// are not exported.
func TestAppendWritesNothing(t *testing.T) {
	found := 0
	for _, k := range append(kinds(), reflect.TypeFor[metav1.PartialObjectMetadata]()) {
		for i := range 6 {
			obj := newOf(k)
			filler(int64(i), i%2 == 1).Fill(obj)
			found += asDecoded(reflect.ValueOf(obj).Elem())
			before := obj.DeepCopyObject()
			if !reflect.DeepEqual(obj, before) {
				t.Fatalf("%v: its copy is another", k)
			}
			if _, err := codecFor(t, obj).Append(nil, obj); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(obj, before) {
				t.Errorf("%v: Append has written into it", k)
				break
			}
		}
	}
	if found < 500 {
		t.Fatalf("only %d quantities", found)
	}
}

// TestAppendShared: several goroutines may encode an object at once, as when fakes
// share it.
func TestAppendShared(t *testing.T) {
	limit, target := resource.NewQuantity(1<<20, resource.BinarySI), resource.NewMilliQuantity(1500, resource.DecimalSI)
	pod := &corev1.Pod{Spec: corev1.PodSpec{
		Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: limit},
		}}},
		Containers: []corev1.Container{{Env: []corev1.EnvVar{{ValueFrom: &corev1.EnvVarSource{
			ResourceFieldRef: &corev1.ResourceFieldSelector{Divisor: *target}}}},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": *target}}}},
	}}
	hpa := &autoscalingv2.HorizontalPodAutoscaler{Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		Metrics: []autoscalingv2.MetricSpec{{Resource: &autoscalingv2.ResourceMetricSource{
			Target: autoscalingv2.MetricTarget{Value: target}}}}}}
	for _, obj := range []runtime.Object{pod, hpa} {
		c := codecFor(t, obj)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 20 {
					if _, err := c.Append(nil, obj); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		comesBack(t, c, obj)
	}
}
