package codec

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/vmihailenco/msgpack/v5/msgpcode"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var bytesPlan = orNil(plan{
	encode: func(e *encoder, v reflect.Value) error { return e.bytes(v.Bytes()) },
	decode: func(d *decoder, v reflect.Value) error {
		b, err := d.view()
		v.SetBytes(append(make([]byte, 0, len(b)), b...))
		return err
	},
})

var quantityPlan = plan{
	encode: func(e *encoder, v reflect.Value) error { return e.EncodeString(quantityTextOf(v)) },
	decode: func(d *decoder, v reflect.Value) error {
		s, err := d.string()
		if err != nil {
			return err
		}
		q, err := resource.ParseQuantity(s)
		*v.Addr().Interface().(*resource.Quantity) = q
		return d.damaged(err)
	},
}

var timePlan = plan{
	encode: func(e *encoder, v reflect.Value) error { return e.time(v.Addr().Interface().(*metav1.Time).Time) },
	decode: func(d *decoder, v reflect.Value) (err error) {
		v.Addr().Interface().(*metav1.Time).Time, err = d.time()
		return err
	},
}

var microTimePlan = plan{
	encode: func(e *encoder, v reflect.Value) error { return e.time(v.Addr().Interface().(*metav1.MicroTime).Time) },
	decode: func(d *decoder, v reflect.Value) (err error) {
		v.Addr().Interface().(*metav1.MicroTime).Time, err = d.time()
		return err
	},
}

func (e *encoder) time(t time.Time) error {
	if t.Nanosecond() == 0 {
		return e.EncodeInt(t.Unix())
	}
	if err := e.EncodeArrayLen(2); err != nil {
		return err
	}
	if err := e.EncodeInt(t.Unix()); err != nil {
		return err
	}
	return e.EncodeInt(int64(t.Nanosecond()))
}

// time returns a local time, as Kubernetes decodes it.
func (d *decoder) time() (time.Time, error) {
	c, err := d.PeekCode()
	if err != nil {
		return time.Time{}, d.damaged(err)
	}
	var sec, nsec int64
	if msgpcode.IsFixedArray(c) {
		if err = d.arrayOf(2); err != nil {
			return time.Time{}, err
		}
		if sec, err = d.int(); err != nil {
			return time.Time{}, err
		}
		if nsec, err = d.int(); err != nil {
			return time.Time{}, err
		}
	} else if sec, err = d.int(); err != nil {
		return time.Time{}, err
	}
	t := time.Unix(sec, nsec)
	if t.IsZero() {
		return time.Time{}, nil
	}
	return t, nil
}

// The fields of FieldsV1 depend on the build, so only accessors are used.
var fieldsV1Plan = plan{
	encode: func(e *encoder, v reflect.Value) error {
		return e.bytes(v.Addr().Interface().(*metav1.FieldsV1).GetRawBytes())
	},
	decode: func(d *decoder, v reflect.Value) error {
		b, err := d.view()
		v.Addr().Interface().(*metav1.FieldsV1).SetRawBytes(b)
		return err
	},
}

var unstructuredPlan = plan{
	nilable: true,
	encode: func(e *encoder, v reflect.Value) error {
		return e.object(v.Addr().Interface().(*unstructured.Unstructured).Object)
	},
	decode: func(d *decoder, v reflect.Value) (err error) {
		v.Addr().Interface().(*unstructured.Unstructured).Object, err = d.object()
		return err
	},
}

// objectPlan is for the Object of a RawExtension. For versioned types, decoders fill it
// only with an Unstructured.
var objectPlan = orNil(plan{
	encode: func(e *encoder, v reflect.Value) error {
		u, ok := v.Interface().(*unstructured.Unstructured)
		if !ok || u == nil || u.Object == nil {
			return fmt.Errorf("%w: runtime.Object of type %v", ErrUnsupported, v.Elem().Type())
		}
		return e.any(u.Object)
	},
	decode: func(d *decoder, v reflect.Value) error {
		m, err := d.object()
		v.Set(reflect.ValueOf(&unstructured.Unstructured{Object: m}))
		return err
	},
})

var anyPlan = plan{
	nilable: true,
	encode:  func(e *encoder, v reflect.Value) error { return e.any(v.Interface()) },
	decode: func(d *decoder, v reflect.Value) error {
		x, err := d.any()
		if x != nil {
			v.Set(reflect.ValueOf(x))
		}
		return err
	},
}

// jsonPlan calls the marshaler itself, since json.Marshal would reformat its result.
var jsonPlan = plan{
	encode: func(e *encoder, v reflect.Value) error {
		b, err := v.Addr().Interface().(json.Marshaler).MarshalJSON()
		if err != nil {
			return fmt.Errorf("codec: %v as JSON: %w", v.Type(), err)
		}
		if !json.Valid(b) {
			return fmt.Errorf("%w: %v gives no JSON", ErrUnsupported, v.Type())
		}
		return e.bytes(b)
	},
	decode: func(d *decoder, v reflect.Value) error {
		b, err := d.view()
		if err != nil {
			return err
		}
		if !json.Valid(b) { // unmarshalers may rely on valid JSON
			return d.damaged(fmt.Errorf("no JSON for a %v", v.Type()))
		}
		return d.damaged(v.Addr().Interface().(json.Unmarshaler).UnmarshalJSON(bytes.Clone(b)))
	},
}

var textPlan = plan{
	encode: func(e *encoder, v reflect.Value) error {
		b, err := v.Addr().Interface().(encoding.TextMarshaler).MarshalText()
		if err != nil {
			return fmt.Errorf("codec: %v as text: %w", v.Type(), err)
		}
		return e.EncodeString(string(b))
	},
	decode: func(d *decoder, v reflect.Value) error {
		s, err := d.string()
		if err != nil {
			return err
		}
		return d.damaged(parseText(v, s))
	},
}

func formatText(v reflect.Value) (string, error) {
	p := reflect.New(v.Type())
	p.Elem().Set(v)
	b, err := p.Interface().(encoding.TextMarshaler).MarshalText()
	return string(b), err
}

func parseText(v reflect.Value, s string) error {
	return v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(s))
}
