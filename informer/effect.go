package informer

import (
	"crypto/sha256"
	"encoding/hex"
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/dump"

	"github.com/kubewake/kubewake/internal/objmeta"
)

// effectOf names what a transform does to a made-up object of the example's type, in which
// nearly every field has a value. It is another one if the transform drops other fields,
// since a setting of the program has changed. It is "" if the transform does something else
// each time.
func effectOf(fn cache.TransformFunc, example runtime.Object) string {
	var made [2]string
	for i := range made {
		var ended sync.WaitGroup
		ended.Go(func() { // it may end its goroutine
			defer func() { _ = recover() }() // it need not take every object
			if obj, err := fn(madeUp(example)); err == nil {
				made[i] = dump.ForHash(obj)
			}
		})
		ended.Wait()
	}
	if made[0] != made[1] {
		return ""
	}
	sum := sha256.Sum256([]byte(made[0]))
	return hex.EncodeToString(sum[:8])
}

// madeUp returns an object of the example's type with something in nearly every field.
func madeUp(example runtime.Object) runtime.Object {
	if reflect.TypeOf(example).Kind() != reflect.Pointer {
		return example.DeepCopyObject()
	}
	if u, ok := example.(*unstructured.Unstructured); ok {
		var meta metav1.ObjectMeta
		fillIn(reflect.ValueOf(&meta).Elem(), 0)
		meta.DeletionTimestamp, meta.ManagedFields[0].FieldsV1 = nil, nil // made-up bytes are no JSON
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&metav1.PartialObjectMetadata{ObjectMeta: meta})
		if err != nil {
			fields = map[string]any{}
		}
		for _, name := range []string{"spec", "status", "data"} {
			fields[name] = map[string]any{"x": "x"}
		}
		made := &unstructured.Unstructured{Object: fields}
		made.SetGroupVersionKind(u.GroupVersionKind())
		return made
	}
	made := reflect.New(reflect.TypeOf(example).Elem()).Interface().(runtime.Object)
	fillIn(reflect.ValueOf(made).Elem(), 0)
	if m := objmeta.Of(made); m != nil {
		m.SetDeletionTimestamp(nil) // a transform may leave what is being deleted alone
	}
	return made
}

// deepest is how deep fillIn goes: types may contain themselves.
const deepest = 12

// fillIn gives the value and all that it consists of values that are not zero. It leaves out
// interfaces and unexported fields.
func fillIn(v reflect.Value, depth int) {
	if depth > deepest || !v.CanSet() {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	case reflect.String:
		v.SetString("x")
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fillIn(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fillIn(v.Index(0), depth+1)
	case reflect.Array:
		for i := range v.Len() {
			fillIn(v.Index(i), depth+1)
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fillIn(key, depth+1)
		fillIn(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
		if v.Type().Key().Kind() == reflect.String && value.Kind() == reflect.String { // the one that transforms drop most
			v.SetMapIndex(reflect.ValueOf("kubectl.kubernetes.io/last-applied-configuration").Convert(key.Type()), value)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			fillIn(v.Field(i), depth+1)
		}
	}
}
