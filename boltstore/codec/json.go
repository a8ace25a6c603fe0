package codec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// jsonCodec stores an object as its JSON, and reads it as client-go's decoder reads an answer of
// the server: with the case of names, and with integers as int64 where the type does not say.
// So what comes from a server comes back as it came.
type jsonCodec struct {
	typ reflect.Type // of the pointer
}

func (jsonCodec) ID() byte     { return IDJSON }
func (jsonCodec) Name() string { return "json" }

func (c jsonCodec) Append(dst []byte, obj runtime.Object) (out []byte, err error) {
	defer caught(&err, ErrUnsupported)
	out = dst
	if _, err := pointerOf(c.typ, obj); err != nil {
		return dst, err
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false) // leaves the bytes of a RawExtension and of FieldsV1 as they are
	if err := e.Encode(obj); err != nil {
		return dst, fmt.Errorf("%w: %v as JSON: %w", ErrUnsupported, c.typ, err)
	}
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...), nil
}

func (c jsonCodec) Decode(data []byte) (obj runtime.Object, err error) {
	defer func() {
		if err != nil {
			obj = nil
		}
	}()
	defer caught(&err, ErrDamaged)
	v := reflect.New(c.typ.Elem())
	if err := utiljson.Unmarshal(data, v.Interface()); err != nil {
		return nil, fmt.Errorf("%w: %v: %w", ErrDamaged, c.typ, err)
	}
	return v.Interface().(runtime.Object), nil
}

// caught turns a panic in a type's own marshalers into an error.
func caught(err *error, as error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: a marshaler panicked: %v", as, p)
	}
}
