package codec

import (
	"fmt"
	"maps"
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
		return e.nested(func() error {
			if err := e.EncodeArrayLen(len(v)); err != nil {
				return err
			}
			for _, x := range v {
				if err := e.any(x); err != nil {
					return err
				}
			}
			return nil
		})
	case map[string]any:
		return e.nested(func() error {
			if err := e.EncodeMapLen(len(v)); err != nil {
				return err
			}
			for _, k := range slices.Sorted(maps.Keys(v)) {
				if err := e.EncodeString(k); err != nil {
					return err
				}
				if err := e.any(v[k]); err != nil {
					return fmt.Errorf("%s: %w", k, err)
				}
			}
			return nil
		})
	}
	return fmt.Errorf("%w: a %T, which no JSON gives", ErrUnsupported, v)
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
	s := make([]any, 0, min(n, maxAhead))
	err = d.nested(func() error {
		for range n {
			v, err := d.any()
			if err != nil {
				return err
			}
			s = append(s, v)
		}
		return nil
	})
	return s, err
}

func (d *decoder) anyMap() (any, error) {
	n, err := d.mapLen()
	if err != nil {
		return nil, err
	}
	m := make(map[string]any, min(n, maxAhead))
	err = d.nested(func() error {
		for range n {
			k, err := d.string()
			if err != nil {
				return err
			}
			if m[k], err = d.any(); err != nil {
				return err
			}
		}
		return nil
	})
	return m, err
}
