package codec

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// maxDepth bounds how deep values may be nested, as Kubernetes does for JSON.
	maxDepth = 10_000

	// maxAhead is how many elements are allocated before they are read.
	maxAhead = 256
)

type unstructuredCodec struct{}

func (unstructuredCodec) ID() byte     { return IDUnstructured }
func (unstructuredCodec) Name() string { return "unstructured" }

func (unstructuredCodec) Append(dst []byte, obj runtime.Object) ([]byte, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || u == nil {
		return dst, fmt.Errorf("%w: want a %T, have a %T", ErrUnsupported, u, obj)
	}
	if u.Object == nil {
		return append(dst, msgpcode.Nil), nil
	}
	out := bytes.NewBuffer(dst)
	e := encoder{Encoder: msgpack.GetEncoder()}
	defer msgpack.PutEncoder(e.Encoder)
	e.Reset(out)
	if err := e.value(u.Object, 0); err != nil {
		return dst, err
	}
	return out.Bytes(), nil
}

func (unstructuredCodec) Decode(data []byte) (runtime.Object, error) {
	d := decoder{msgpack.GetDecoder(), data, bytes.NewReader(data)}
	defer msgpack.PutDecoder(d.Decoder)
	d.Reset(d.r)
	v, err := d.value(0)
	m, ok := v.(map[string]any)
	if err == nil && (!ok && v != nil || d.r.Len() > 0) {
		err = fmt.Errorf("a %T and %d more bytes", v, d.r.Len())
	}
	if err != nil {
		return nil, fmt.Errorf("%w: unstructured, before byte %d: %w", ErrDamaged, len(data)-d.r.Len(), err)
	}
	return &unstructured.Unstructured{Object: m}, nil
}

// encoder sorts keys, and has limits of depth and of types, which its library has not.
type encoder struct {
	*msgpack.Encoder
	keys []string // stack of the keys to write, in maps begun
}

// value writes a value of the kinds that JSON decoders of Kubernetes make.
func (e *encoder) value(v any, depth int) error {
	if depth >= maxDepth {
		return fmt.Errorf("%w: nested too deep", ErrUnsupported)
	}
	switch v := v.(type) {
	case nil, string, bool:
		return e.Encode(v)
	case int64:
		return e.EncodeInt(v)
	case float64:
		return e.EncodeFloat64(v)
	case []any:
		err := e.EncodeArrayLen(len(v))
		for i := 0; err == nil && i < len(v); i++ {
			err = e.value(v[i], depth+1)
		}
		return err
	case map[string]any:
		return e.object(v, depth)
	}
	return fmt.Errorf("%w: a %T, which no JSON gives", ErrUnsupported, v)
}

func (e *encoder) object(m map[string]any, depth int) error {
	err := e.EncodeMapLen(len(m))
	start := len(e.keys)
	for k := range m {
		e.keys = append(e.keys, k)
	}
	slices.Sort(e.keys[start:])
	for i := 0; err == nil && i < len(m); i++ {
		k := e.keys[start+i]
		if err = e.EncodeString(k); err == nil {
			err = e.value(m[k], depth+1)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", k, err)
		}
	}
	e.keys = e.keys[:start]
	return err
}

// decoder trusts no length.
type decoder struct {
	*msgpack.Decoder
	data []byte
	r    *bytes.Reader // over data
}

func (d *decoder) value(depth int) (any, error) {
	c, err := d.PeekCode()
	switch {
	case err != nil:
		return nil, err
	case depth >= maxDepth:
		return nil, errors.New("nested too deep")
	case msgpcode.IsString(c):
		return d.string()
	case msgpcode.IsFixedArray(c), c == msgpcode.Array16, c == msgpcode.Array32:
		return d.array(depth)
	case msgpcode.IsFixedMap(c), c == msgpcode.Map16, c == msgpcode.Map32:
		return d.object(depth)
	}
	v, err := d.DecodeInterfaceLoose()
	switch n := v.(type) {
	case nil, bool, int64, float64:
		return v, err
	case uint64:
		if n <= math.MaxInt64 {
			return int64(n), err
		}
	}
	return nil, cmp.Or(err, fmt.Errorf("a %T, which no JSON gives", v))
}

// length checks a length n. Each element takes at least one of the remaining bytes.
func (d *decoder) length(n int, err error) (int, error) {
	if err == nil && (n < 0 || n > d.r.Len()) {
		err = fmt.Errorf("length of %d, %d bytes left", n, d.r.Len())
	}
	return n, err
}

func (d *decoder) string() (string, error) {
	n, err := d.length(d.DecodeBytesLen())
	if err != nil {
		return "", err
	}
	start := len(d.data) - d.r.Len()
	_, err = d.r.Seek(int64(n), io.SeekCurrent)
	return string(d.data[start : start+n]), err
}

func (d *decoder) array(depth int) (any, error) {
	n, err := d.length(d.DecodeArrayLen())
	if err != nil {
		return nil, err
	}
	s := make([]any, 0, min(n, maxAhead))
	for range n {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		s = append(s, v)
	}
	return s, nil
}

func (d *decoder) object(depth int) (any, error) {
	n, err := d.length(d.DecodeMapLen())
	if err != nil {
		return nil, err
	}
	m := make(map[string]any, min(n, maxAhead))
	for range n {
		k, err := d.string()
		if err == nil {
			m[k], err = d.value(depth + 1)
		}
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}
