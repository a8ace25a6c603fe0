// Package codec turns objects into the payload bytes of a record and back.
//
// Decode(Append(x)) equals x by apiequality.Semantic.DeepEqual, including apiVersion
// and kind at every depth. Objects that are equal except for nil and empty give equal
// bytes. There are three codecs, and [For] chooses by Go type:
//
//   - protobuf, for the kinds of k8s.io/api and PartialObjectMetadata, where
//     it drops nothing;
//   - struct, which is msgpack, for every other Go struct;
//   - unstructured, which is msgpack too, for unstructured.Unstructured.
//
// These codecs lose two things. Protobuf loses fractions of a second in metav1.Time, and
// of a microsecond in MicroTime, which the API does not have either. All codecs lose
// decimals of a resource.Quantity below its smallest unit, the nano.
//
// A type or value that might not come back unchanged is refused. [For] refuses functions,
// interfaces with methods, and fields that are not exported if the type has only half a
// pair of marshalers. Append refuses values that only an object shows: a set field that
// is not exported, and a value in an any that is of no JSON kind. If a type's own
// marshalers leave something out, only a round trip shows it; see [RoundTrip]. For all of
// these a caller may bring a [Codec].
//
// # Payloads
//
// protobuf:
//
//	uvarint length, apiVersion, uvarint length, kind, then the message
//
// struct: one msgpack map from field name to value. The name is that of the json tag,
// otherwise the Go name; a name already taken gets an apostrophe. Embedded structs are
// part of the struct around them. A field with its zero value is left out. A slice or
// map that is empty but not nil is not left out. Map keys are strings, sorted.
//
// A Time is its Unix second, or an array of that and the nanosecond; a Quantity its
// string; FieldsV1 its bytes. A type with both halves of a JSON or text marshaler is
// stored as they write it, but only if it hides something or has interfaces. Otherwise
// its fields, elements or number are stored, as if it had no marshalers; such types
// have their own ID. A pointer to a value that may itself be nil is an array of one.
//
// unstructured: one msgpack value, of nil, booleans, integers (always int64),
// float 64, strings, arrays, and maps with sorted strings for keys.
package codec

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

var (
	// ErrUnsupported means that a type or value has no form here.
	ErrUnsupported = errors.New("codec: unsupported")

	// ErrDamaged means that bytes are not a payload of that codec and type.
	ErrDamaged = errors.New("codec: damaged payload")
)

// IDs of the codecs here. An ID means one form forever: a new form gets a new ID.
// Codecs of callers have IDs from IDCustom on.
const (
	IDProtobuf     byte = 1
	IDStruct       byte = 2
	IDUnstructured byte = 3
	IDParts        byte = 4 // struct, if a type in it has marshalers that are not used
	IDCustom       byte = 128
)

// Codec is the form of the objects of one Go type. It is safe for concurrent use. A
// caller may bring one for its own type: it must be lossless and deterministic, and its
// ID at least IDCustom.
type Codec interface {
	// ID is stored with each payload, and tells which codec wrote it.
	ID() byte

	// Name is the codec's name in messages.
	Name() string

	// Append appends the payload of obj to dst. It neither modifies nor
	// retains obj. An error leaves dst as it was.
	Append(dst []byte, obj runtime.Object) ([]byte, error)

	// Decode returns a new object, which shares no memory with data. Damaged
	// data gives an error, or another object of the type, never a panic.
	Decode(data []byte) (runtime.Object, error)
}

// For returns the codec for objects of example's Go type; example may be a nil pointer.
// If a field of the type might not come back unchanged, the error wraps [ErrUnsupported]
// and names the field.
func For(example runtime.Object) (Codec, error) {
	if _, ok := example.(*unstructured.Unstructured); ok {
		return unstructuredCodec{}, nil
	}
	t := reflect.TypeOf(example)
	if c, ok := found.Load(t); ok {
		return c.(Codec), nil
	}
	c, err := forType(t)
	if err == nil {
		found.Store(t, c)
	}
	return c, err
}

// found are the codecs that For has returned, by Go type.
var found sync.Map

func forType(t reflect.Type) (Codec, error) {
	if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("%w: %v is no pointer to a struct", ErrUnsupported, t)
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

// pointerOf returns obj as a non-nil pointer of type t.
func pointerOf(t reflect.Type, obj runtime.Object) (reflect.Value, error) {
	v := reflect.ValueOf(obj)
	if !v.IsValid() || v.Type() != t || v.IsNil() {
		return v, fmt.Errorf("%w: want a %v, have a %T", ErrUnsupported, t, obj)
	}
	return v, nil
}
