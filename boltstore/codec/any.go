package codec

import (
	"fmt"
	"slices"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

type unstructuredCodec struct{}

func (unstructuredCodec) ID() byte     { return IDUnstructured }
func (unstructuredCodec) Name() string { return "unstructured" }

func (unstructuredCodec) Append(dst []byte, obj runtime.Object) ([]byte, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u == nil {
		return dst, fmt.Errorf("%w: want a %T, have a %T", ErrUnsupported, u, obj)
	}
	return appendValue(dst, func(e *encoder) error { return e.object(u.Object) })
}

func (unstructuredCodec) Decode(data []byte) (runtime.Object, error) {
	u := &unstructured.Unstructured{}
	err := decodeValue(data, func(d *decoder) (err error) {
		u.Object, err = d.object()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("unstructured: %w", err)
	}
	return u, nil
}

// object writes a map that may be nil.
func (e *encoder) object(m map[string]any) error {
	if m == nil {
		return e.EncodeNil()
	}
	return e.any(m)
}

// any writes a value of the kinds that JSON decoders of Kubernetes make.
func (e *encoder) any(v any) error {
	switch v := v.(type) {
	case nil:
		return e.EncodeNil()
	case string:
		return e.EncodeString(v)
	case bool:
		return e.EncodeBool(v)
	case int64:
		return e.EncodeInt(v)
	case float64:
		return e.EncodeFloat64(v)
	case []any:
		return e.array(v)
	case map[string]any:
		return e.anyMap(v)
	}
	return fmt.Errorf("%w: a %T, which no JSON gives", ErrUnsupported, v)
}

func (e *encoder) array(s []any) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	if err := e.EncodeArrayLen(len(s)); err != nil {
		return err
	}
	for i, v := range s {
		if err := e.any(v); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

func (e *encoder) anyMap(m map[string]any) error {
	if err := e.enter(); err != nil {
		return err
	}
	defer e.leave()
	if err := e.EncodeMapLen(len(m)); err != nil {
		return err
	}
	start := len(e.keys)
	for k := range m {
		e.keys = append(e.keys, k)
	}
	slices.Sort(e.keys[start:])
	for i := range len(m) {
		k := e.keys[start+i]
		if err := e.EncodeString(k); err != nil {
			return err
		}
		if err := e.any(m[k]); err != nil {
			return fmt.Errorf("%s: %w", k, err)
		}
	}
	e.keys = e.keys[:start]
	return nil
}

// object reads a map that may be nil.
func (d *decoder) object() (map[string]any, error) {
	v, err := d.any()
	if m, ok := v.(map[string]any); ok || v == nil {
		return m, err
	}
	return nil, fmt.Errorf("%w: no map", ErrDamaged)
}

func (d *decoder) any() (any, error) {
	c, err := d.PeekCode()
	if err != nil {
		return nil, d.damaged(err)
	}
	switch {
	case c == msgpcode.Nil:
		return nil, d.damaged(d.DecodeNil())
	case c == msgpcode.True, c == msgpcode.False:
		b, err := d.DecodeBool()
		return b, d.damaged(err)
	case msgpcode.IsFixedString(c), c == msgpcode.Str8, c == msgpcode.Str16, c == msgpcode.Str32:
		return d.string()
	case c == msgpcode.Double:
		f, err := d.DecodeFloat64()
		return f, d.damaged(err)
	case msgpcode.IsFixedArray(c), c == msgpcode.Array16, c == msgpcode.Array32:
		return d.array()
	case msgpcode.IsFixedMap(c), c == msgpcode.Map16, c == msgpcode.Map32:
		return d.anyMap()
	}
	return d.int()
}

func (d *decoder) array() (any, error) {
	n, err := d.arrayLen()
	if err != nil {
		return nil, err
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	s := make([]any, 0, min(n, maxAhead))
	for range n {
		v, err := d.any()
		if err != nil {
			return nil, err
		}
		s = append(s, v)
	}
	return s, nil
}

func (d *decoder) anyMap() (any, error) {
	n, err := d.mapLen()
	if err != nil {
		return nil, err
	}
	if err := d.enter(); err != nil {
		return nil, err
	}
	defer d.leave()
	m := make(map[string]any, min(n, maxAhead))
	for range n {
		k, err := d.string()
		if err != nil {
			return nil, err
		}
		if m[k], err = d.any(); err != nil {
			return nil, err
		}
	}
	return m, nil
}
