package factory

import (
	"fmt"
	"reflect"
	"unsafe"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// filterOf reads the restrictions of a generated factory's lists. code-generator keeps
// them in two fields of all factories, and offers no other way to learn them. Nothing
// changes these fields after the factory was made.
func filterOf(f any) (*Filter, error) {
	v := reflect.ValueOf(f)
	if v.Kind() == reflect.Pointer && v.Elem().Kind() == reflect.Struct {
		namespace, tweak := v.Elem().FieldByName("namespace"), v.Elem().FieldByName("tweakListOptions")
		if namespace.IsValid() && namespace.Kind() == reflect.String && tweak.IsValid() &&
			tweak.Type().ConvertibleTo(tweakType) {
			filter := &Filter{Namespace: namespace.String()}
			if !tweak.IsNil() {
				// reflect does not return the value of a field that is not exported.
				tweak = reflect.NewAt(tweak.Type(), unsafe.Pointer(tweak.UnsafeAddr())).Elem()
				filter.TweakListOptions = tweak.Convert(tweakType).Interface().(func(*metav1.ListOptions))
			}
			return filter, nil
		}
	}
	return nil, fmt.Errorf("factory: the namespace and the list options of a %T cannot be read, since it does not "+
		"have the fields that code-generator writes: give them as Options.Filter", f)
}

var tweakType = reflect.TypeFor[func(*metav1.ListOptions)]()
