package codec

import (
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
)

// RoundTrip returns an error if payload, which c made from obj, does not decode to an
// equal object. The error wraps [ErrUnsupported] and names the first field that
// differs. Fields that are not exported count, too. If a type hides something and has a
// method Equal, such as Quantity and Time, that method decides. Empty and nil slices
// and maps are equal.
func RoundTrip(c Codec, payload []byte, obj runtime.Object) (err error) {
	defer func() {
		if p := recover(); p != nil { // in a method of the type
			err = fmt.Errorf("%w: %T cannot be compared with the decoded object: %v", ErrUnsupported, obj, p)
		}
	}()
	back, err := c.Decode(payload)
	if err != nil {
		return fmt.Errorf("%w: the encoded object cannot be decoded: %w", ErrUnsupported, err)
	}
	if reflect.TypeOf(back) != reflect.TypeOf(obj) {
		return fmt.Errorf("%w: a %T comes back as a %T", ErrUnsupported, obj, back)
	}
	same := comparison{}
	if where, ok := same.equal(reflect.ValueOf(obj), reflect.ValueOf(back)); !ok {
		return fmt.Errorf("%w: %s of %T does not come back as it was", ErrUnsupported, where, obj)
	}
	return nil
}

// comparison has the pairs of pointers whose comparison has begun. They count as equal,
// since values may contain themselves.
type comparison map[pair]bool

type pair struct {
	a, b uintptr
	typ  reflect.Type
}

// equal compares values of one type. If they differ, where names the part.
func (c comparison) equal(a, b reflect.Value) (where string, ok bool) {
	switch a.Kind() {
	case reflect.Pointer:
		both := pair{a.Pointer(), b.Pointer(), a.Type()}
		if a.IsNil() || b.IsNil() || c[both] {
			return "", a.IsNil() == b.IsNil()
		}
		c[both] = true
		return c.equal(a.Elem(), b.Elem())
	case reflect.Interface:
		if a.IsNil() || b.IsNil() || a.Elem().Type() != b.Elem().Type() {
			return "", a.IsNil() && b.IsNil()
		}
		return c.equal(addressable(a.Elem()), addressable(b.Elem()))
	case reflect.Struct:
		return c.fields(a, b)
	case reflect.Slice, reflect.Array:
		if a.Type() == reflect.TypeFor[json.RawMessage]() && a.Len() == 0 && string(b.Bytes()) == "null" {
			return "", true
		}
		ok = a.Len() == b.Len()
		for i := 0; ok && i < a.Len(); i++ {
			if where, ok = c.equal(a.Index(i), b.Index(i)); !ok {
				where = fmt.Sprintf("[%d]%s", i, where)
			}
		}
		return where, ok
	case reflect.Map:
		ok = a.Len() == b.Len()
		for it := a.MapRange(); ok && it.Next(); {
			other := b.MapIndex(it.Key())
			if ok = other.IsValid(); ok {
				where, ok = c.equal(addressable(it.Value()), addressable(other))
			}
			if !ok {
				where = fmt.Sprintf("[%v]%s", it.Key(), where)
			}
		}
		return where, ok
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return "", a.IsNil() && b.IsNil()
	}
	return "", a.Equal(b)
}

func (c comparison) fields(a, b reflect.Value) (where string, ok bool) {
	_, message := a.Addr().Type().MethodByName("ProtoReflect")
	hides := false
	for f := range a.Type().Fields() {
		switch {
		case f.Name == "_", message && (f.Name == "sizeCache" || f.Name == "state"): // holds nothing
			continue
		case !f.IsExported() && !(f.Anonymous && f.Type.Kind() == reflect.Struct):
			hides = true
		}
		// A field that is not exported can be read only through its address.
		x := reflect.NewAt(f.Type, a.FieldByIndex(f.Index).Addr().UnsafePointer()).Elem()
		y := reflect.NewAt(f.Type, b.FieldByIndex(f.Index).Addr().UnsafePointer()).Elem()
		if within, same := c.equal(x, y); !same && where == "" {
			where = "." + f.Name + within
		}
	}
	if equal := a.Addr().MethodByName("Equal"); hides && equal.IsValid() {
		for _, arg := range []reflect.Value{b, b.Addr()} {
			if equal.Type() == reflect.FuncOf([]reflect.Type{arg.Type()}, []reflect.Type{reflect.TypeFor[bool]()},
				false) {
				return "", equal.Call([]reflect.Value{arg})[0].Bool()
			}
		}
	}
	return where, where == ""
}

// addressable returns an addressable copy of v.
func addressable(v reflect.Value) reflect.Value {
	p := reflect.New(v.Type()).Elem()
	p.Set(v)
	return p
}
