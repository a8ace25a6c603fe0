package codec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

var rawMessageType = reflect.TypeFor[json.RawMessage]()

// isNull says whether a json.RawMessage stands for null.
func isNull(v reflect.Value) bool { return v.Len() == 0 || string(v.Bytes()) == "null" }

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
		if a.IsNil() || b.IsNil() {
			return "", a.IsNil() == b.IsNil()
		}
		both := pair{a.Pointer(), b.Pointer(), a.Type()}
		if c[both] {
			return "", true
		}
		c[both] = true
		return c.equal(a.Elem(), b.Elem())
	case reflect.Interface:
		if a.IsNil() || b.IsNil() {
			return "", a.IsNil() == b.IsNil()
		}
		if a.Elem().Type() != b.Elem().Type() {
			return "", false
		}
		return c.equal(addressable(a.Elem()), addressable(b.Elem()))
	case reflect.Struct:
		return c.fields(a, b)
	case reflect.Slice, reflect.Array:
		if a.Type() == rawMessageType && isNull(a) && isNull(b) {
			return "", true
		}
		if a.Len() != b.Len() {
			return "", false
		}
		for i := range a.Len() {
			if where, ok := c.equal(a.Index(i), b.Index(i)); !ok {
				return fmt.Sprintf("[%d]%s", i, where), false
			}
		}
		return "", true
	case reflect.Map:
		if a.Len() != b.Len() {
			return "", false
		}
		for it := a.MapRange(); it.Next(); {
			other := b.MapIndex(it.Key())
			if !other.IsValid() {
				return fmt.Sprintf("[%v]", it.Key()), false
			}
			if where, ok := c.equal(addressable(it.Value()), addressable(other)); !ok {
				return fmt.Sprintf("[%v]%s", it.Key(), where), false
			}
		}
		return "", true
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		return "", a.IsNil() && b.IsNil()
	case reflect.Float32, reflect.Float64:
		return "", a.Float() == b.Float() || a.Float() != a.Float() && b.Float() != b.Float()
	}
	return "", a.Equal(b)
}

func (c comparison) fields(a, b reflect.Value) (where string, ok bool) {
	t := a.Type()
	if eq := equalOf(t); eq >= 0 {
		m := a.Addr().Method(eq)
		if m.Type().In(0) == t {
			return "", m.Call([]reflect.Value{b})[0].Bool()
		}
		return "", m.Call([]reflect.Value{b.Addr()})[0].Bool()
	}
	for f := range t.Fields() {
		if f.Name == "_" || !f.IsExported() && !f.Anonymous && !isHidden(t, f) {
			continue
		}
		x, y := a.FieldByIndex(f.Index), b.FieldByIndex(f.Index)
		// A field that is not exported can be read only through its address.
		x = reflect.NewAt(f.Type, x.Addr().UnsafePointer()).Elem()
		y = reflect.NewAt(f.Type, y.Addr().UnsafePointer()).Elem()
		if where, ok := c.equal(x, y); !ok {
			return "." + f.Name + where, false
		}
	}
	return "", true
}

// equalOf returns the index of the method that compares values of t, -1 for none.
func equalOf(t reflect.Type) int {
	p := reflect.PointerTo(t)
	m, ok := p.MethodByName("Equal")
	if !ok || m.Type.NumIn() != 2 || m.Type.IsVariadic() || m.Type.NumOut() != 1 || m.Type.Out(0).Kind() != reflect.Bool ||
		m.Type.In(1) != t && m.Type.In(1) != p {
		return -1
	}
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[metav1.Time](), reflect.TypeFor[metav1.MicroTime]():
		return m.Index
	}
	for f := range t.Fields() {
		if isHidden(t, f) {
			return m.Index
		}
	}
	return -1
}

// isHidden says whether a field of t is not exported, and holds something. Fields of an embedded
// struct count for themselves, internal ones of protobuf messages do not.
func isHidden(t reflect.Type, f reflect.StructField) bool {
	_, message := reflect.PointerTo(t).MethodByName("ProtoReflect")
	switch {
	case f.IsExported(), f.Name == "_", f.Type.Size() == 0, f.Anonymous && f.Type.Kind() == reflect.Struct:
		return false
	case message && (f.Name == "sizeCache" || strings.HasPrefix(f.Type.PkgPath(), "google.golang.org/protobuf/")):
		return false
	}
	return true
}

// addressable returns v, or an addressable copy of it.
func addressable(v reflect.Value) reflect.Value {
	if v.CanAddr() {
		return v
	}
	p := reflect.New(v.Type()).Elem()
	p.Set(v)
	return p
}
