package codec

import (
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
)

var quantityType = reflect.TypeFor[resource.Quantity]()

// textless says whether v has a Quantity without a text. The generated code of API types asks
// each Quantity for its text, and the Quantity keeps it, while other goroutines may be reading
// the object. So such an object is copied before it is encoded.
func textless(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer:
		return !v.IsNil() && textless(v.Elem())
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if textless(v.Index(i)) {
				return true
			}
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			if textless(it.Value()) {
				return true
			}
		}
	case reflect.Struct:
		if v.Type() == quantityType {
			return v.FieldByName("s").String() == "" // its text
		}
		for _, i := range quantityFields(v.Type()) {
			if textless(v.Field(i)) {
				return true
			}
		}
	}
	return false
}

// quantities has the fields that hold Quantities, by type of a struct.
var quantities sync.Map

func quantityFields(t reflect.Type) []int {
	if known, ok := quantities.Load(t); ok {
		return known.([]int)
	}
	var fields []int
	for f := range t.Fields() {
		// The generated code encodes a copy of a map's Quantity.
		inMap := f.Type.Kind() == reflect.Map && f.Type.Elem() == quantityType
		if !inMap && holds(f.Type, func(t reflect.Type) bool { return t == quantityType }, map[reflect.Type]bool{}) {
			fields = append(fields, f.Index[0])
		}
	}
	quantities.Store(t, fields)
	return fields
}

// holds says whether values of t may have parts of a type that is wanted. seen has the types whose
// search has begun.
func holds(t reflect.Type, wanted func(reflect.Type) bool, seen map[reflect.Type]bool) bool {
	if wanted(t) || seen[t] {
		return !seen[t]
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return holds(t.Elem(), wanted, seen)
	case reflect.Map:
		return holds(t.Key(), wanted, seen) || holds(t.Elem(), wanted, seen)
	case reflect.Struct:
		for f := range t.Fields() {
			if holds(f.Type, wanted, seen) {
				return true
			}
		}
	}
	return false
}
