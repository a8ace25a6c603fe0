// Package codec turns objects into the payload bytes of a record and back.
//
// Decode(Append(x)) equals x as apiequality.Semantic.DeepEqual sees it, with
// apiVersion and kind, at every depth, as they were. Objects that are equal
// down to nil and empty give equal bytes. Three codecs share the work, and [For] chooses by Go type:
//
//   - protobuf, for the kinds of k8s.io/api and PartialObjectMetadata, where
//     it drops nothing;
//   - struct, which is msgpack, for every other Go struct;
//   - unstructured, which is msgpack too, for unstructured.Unstructured.
//
// What they do not keep: with protobuf, fractions of a second in metav1.Time and of a
// microsecond in MicroTime, which the API has not either; decimals of a
// resource.Quantity below its smallest unit, the nano. What else a type may hold
// and no form here is known to keep is refused, by [For] where the type tells:
// functions, interfaces with methods, fields that are not exported and that the
// type fills by half a pair of marshalers. Append refuses what only an object
// tells: a field that is set and not exported, a value of no JSON kind in an
// any. What a type's own marshalers leave out only a round trip shows, see
// [RoundTrip]. For all of these a caller may bring a [Codec].
//
// # Payloads
//
// protobuf:
//
//	uvarint length, apiVersion, uvarint length, kind, then the message
//
// struct: one msgpack map from field name to value. The name is that of the
// json tag, else the Go name; a name already taken gets an apostrophe.
// Embedded structs are part of the struct around them. A field with its zero
// value is left out; a slice or map that is empty but not nil is not. Map keys
// are strings, sorted. A Time is its Unix second, or an array of that and the
// nanosecond; a Quantity its string; FieldsV1 its bytes. A type with both halves
// of a JSON or text marshaler is what these give, but only if it hides something
// or has interfaces: else it is its fields, elements or number, as if it had
// none (such types have an ID of their own). A pointer to what may itself be
// nil is an array of one.
//
// unstructured: one msgpack value, of nil, booleans, integers (always int64),
// float 64, strings, arrays, and maps with sorted strings for keys.
package codec

import (
	"errors"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	// ErrUnsupported means that a type or value has no form here.
	ErrUnsupported = errors.New("codec: unsupported")

	// ErrDamaged means that bytes are not a payload of that codec and type.
	ErrDamaged = errors.New("codec: damaged payload")
)

// IDs of the codecs here. An ID stands for one form for ever: a new form takes
// a new one. Codecs of callers take IDs from IDCustom on.
const (
	IDProtobuf     byte = 1
	IDStruct       byte = 2
	IDUnstructured byte = 3
	IDParts        byte = 4 // struct, where something has marshalers that are not used
	IDCustom       byte = 128
)

// Codec is the form of the objects of one Go type. It is safe for concurrent
// use. A caller may bring one for a type of its own: it must be lossless and
// deterministic, and its ID at least IDCustom.
type Codec interface {
	// ID is stored with each payload, and tells which codec wrote it.
	ID() byte

	// Name is for people.
	Name() string

	// Append appends the payload of obj to dst. It neither modifies nor
	// retains obj. An error leaves dst as it was.
	Append(dst []byte, obj runtime.Object) ([]byte, error)

	// Decode returns a new object, which shares no memory with data. Damaged
	// data gives an error, or another object of the type, never a panic.
	Decode(data []byte) (runtime.Object, error)
}

// For returns the codec for objects of example's Go type; example may be a nil
// pointer of it. The error wraps [ErrUnsupported] and names the field at fault,
// where the type has something that cannot be shown to come back as it was.
func For(example runtime.Object) (Codec, error) {
	if _, ok := example.(*unstructured.Unstructured); ok {
		return unstructuredCodec{}, nil
	}
	t := reflect.TypeOf(example)
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("%w: %T is no pointer to a struct", ErrUnsupported, example)
	}
	if protobufExact(t) {
		return protobufCodec{t, textlessOf(t.Elem(), map[reflect.Type]*textless{})}, nil
	}
	p, err := planFor(t.Elem())
	if err != nil {
		return nil, err
	}
	id := IDStruct
	if partly(t.Elem(), map[reflect.Type]bool{}) {
		id = IDParts
	}
	return structCodec{t, p, id}, nil
}

// pointerOf is obj as a non-nil pointer of type t.
func pointerOf(t reflect.Type, obj runtime.Object) (reflect.Value, error) {
	v := reflect.ValueOf(obj)
	if !v.IsValid() || v.Type() != t || v.IsNil() {
		return v, fmt.Errorf("%w: want a %v, have a %T", ErrUnsupported, t, obj)
	}
	return v, nil
}
