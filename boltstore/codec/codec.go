// Package codec turns objects into the payload bytes of a record and back.
//
// Decode(Append(x)) equals x by apiequality.Semantic.DeepEqual, including apiVersion
// and kind at every depth, as far as JSON, the form on the wire, can hold x. There are three
// codecs, and [For] chooses by Go type:
//
//   - protobuf, for the kinds of k8s.io/api and PartialObjectMetadata, where
//     it drops nothing;
//   - json, for every other Go struct;
//   - unstructured, which is msgpack, for unstructured.Unstructured.
//
// What JSON cannot hold comes only from a program, such as a transform: a field without a
// JSON name (json:"-"), the concrete type of an any or of a RawExtension's Object, text that is
// not UTF-8, fractions of a second in metav1.Time, decimals of a Quantity below the nano.
// Marshallers of the program's own types may leave more out. [For] refuses a type whose empty
// object does not come back; [RoundTrip] tries others. A caller may bring a [Codec] of its own.
//
// # Payloads
//
// protobuf:
//
//	uvarint length, apiVersion, uvarint length, kind, then the message
//
// json: the object's JSON, without escapes for HTML.
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
	IDJSON         byte = 2
	IDUnstructured byte = 3
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
// If an empty object of the type does not come back unchanged, the error wraps
// [ErrUnsupported].
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
		return protobufCodec{t}, nil
	}
	c := jsonCodec{t}
	empty := reflect.New(t.Elem()).Interface().(runtime.Object)
	payload, err := c.Append(nil, empty)
	if err == nil {
		err = RoundTrip(c, payload, empty)
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

// pointerOf returns obj as a non-nil pointer of type t.
func pointerOf(t reflect.Type, obj runtime.Object) (reflect.Value, error) {
	v := reflect.ValueOf(obj)
	if !v.IsValid() || v.Type() != t || v.IsNil() {
		return v, fmt.Errorf("%w: want a %v, have a %T", ErrUnsupported, t, obj)
	}
	return v, nil
}
