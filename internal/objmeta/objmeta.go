// Package objmeta reads the metadata of values from a program, which may be anything.
package objmeta

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Of returns the metadata of an object, nil if it has none. The methods of a nil pointer
// would panic.
func Of(obj any) metav1.Object {
	if IsNil(obj) {
		return nil
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	return m
}

// IsNil says whether obj is nil, or a nil pointer of any type.
func IsNil(obj any) bool {
	v := reflect.ValueOf(obj)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}
