package codec

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The generated code of API types asks a resource.Quantity for its text, and the Quantity
// keeps the text. Other goroutines may be reading the object. So an object with a
// Quantity that has no text yet is copied before it is encoded.

// textless says whether a value has a Quantity without text that encoding would write
// into. nil means that the type has no Quantity.
type textless func(v reflect.Value) bool

var quantityType = reflect.TypeFor[resource.Quantity]()

// quantityText is the index of the field with a Quantity's text, nil if there is no
// such field.
var quantityText = func() []int {
	if f, ok := quantityType.FieldByName("s"); ok && f.Type.Kind() == reflect.String {
		return f.Index
	}
	return nil
}()

// textlessOf finds the Quantities of a type. seen has the types whose search has begun.
func textlessOf(t reflect.Type, seen map[reflect.Type]*textless) textless {
	if t == quantityType {
		return func(v reflect.Value) bool {
			return quantityText == nil || v.FieldByIndex(quantityText).Len() == 0
		}
	}
	switch t.Kind() {
	case reflect.Pointer:
		if in := textlessOf(t.Elem(), seen); in != nil {
			return func(v reflect.Value) bool { return !v.IsNil() && in(v.Elem()) }
		}
	case reflect.Slice, reflect.Array:
		if in := textlessOf(t.Elem(), seen); in != nil {
			return func(v reflect.Value) bool {
				for i := range v.Len() {
					if in(v.Index(i)) {
						return true
					}
				}
				return false
			}
		}
	case reflect.Map:
		if t.Elem() == quantityType {
			return nil // the generated code encodes a copy of it
		}
		if in := textlessOf(t.Elem(), seen); in != nil {
			return func(v reflect.Value) bool {
				for it := v.MapRange(); it.Next(); {
					if in(it.Value()) {
						return true
					}
				}
				return false
			}
		}
	case reflect.Struct:
		return textlessStruct(t, seen)
	}
	return nil
}

func textlessStruct(t reflect.Type, seen map[reflect.Type]*textless) textless {
	if known, ok := seen[t]; ok { // its search has not ended
		return func(v reflect.Value) bool { return *known != nil && (*known)(v) }
	}
	found := new(textless)
	seen[t] = found
	defer delete(seen, t)
	type field struct {
		n  int
		in textless
	}
	var fields []field
	for i := range t.NumField() {
		if in := textlessOf(t.Field(i).Type, seen); in != nil {
			fields = append(fields, field{i, in})
		}
	}
	if len(fields) > 0 {
		*found = func(v reflect.Value) bool {
			for _, f := range fields {
				if f.in(v.Field(f.n)) {
					return true
				}
			}
			return false
		}
	}
	return *found
}
