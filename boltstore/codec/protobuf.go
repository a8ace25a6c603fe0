package codec

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// message has the methods of the generated code of API types.
type message interface {
	runtime.Object
	Size() int
	MarshalToSizedBuffer([]byte) (int, error)
	Unmarshal([]byte) error
}

var (
	messageType  = reflect.TypeFor[message]()
	typeMetaType = reflect.TypeFor[metav1.TypeMeta]()
	partialType  = reflect.TypeFor[metav1.PartialObjectMetadata]()
)

type protobufCodec struct {
	typ reflect.Type // of the pointer
}

func (protobufCodec) ID() byte     { return IDProtobuf }
func (protobufCodec) Name() string { return "protobuf" }

func (c protobufCodec) Append(dst []byte, obj runtime.Object) ([]byte, error) {
	v, err := pointerOf(c.typ, obj)
	if err != nil {
		return dst, err
	}
	tm := v.Elem().FieldByName("TypeMeta").Addr().Interface().(*metav1.TypeMeta)
	m := obj.(message)
	if textless(v) {
		m = m.DeepCopyObject().(message)
	}
	size := m.Size()
	b := slices.Grow(dst, size+len(tm.APIVersion)+len(tm.Kind)+2*binary.MaxVarintLen32)
	for _, s := range []string{tm.APIVersion, tm.Kind} {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	start := len(b)
	b = slices.Grow(b, size)[:start+size]
	n, err := m.MarshalToSizedBuffer(b[start:])
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes, not %d: changed meanwhile", n, size)
	}
	if err != nil {
		return dst, fmt.Errorf("codec: %v as protobuf: %w", c.typ, err)
	}
	return b, nil
}

func (c protobufCodec) Decode(data []byte) (runtime.Object, error) {
	tm, data, err := splitMessage(data)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", err, c.typ)
	}
	v := reflect.New(c.typ.Elem())
	m := v.Interface().(message)
	if err := m.Unmarshal(data); err != nil {
		return nil, fmt.Errorf("%w: %v: %w", ErrDamaged, c.typ, err)
	}
	*v.Elem().FieldByName("TypeMeta").Addr().Interface().(*metav1.TypeMeta) = tm
	return m, nil
}

// Message returns the message in a payload of IDProtobuf. It is not parsed.
func Message(payload []byte) ([]byte, error) {
	_, msg, err := splitMessage(payload)
	return msg, err
}

func splitMessage(payload []byte) (tm metav1.TypeMeta, msg []byte, err error) {
	for _, s := range []*string{&tm.APIVersion, &tm.Kind} {
		n, w := binary.Uvarint(payload)
		if w <= 0 || n > uint64(len(payload)-w) {
			return tm, nil, fmt.Errorf("%w: bad apiVersion or kind", ErrDamaged)
		}
		*s, payload = string(payload[w:w+int(n)]), payload[w+int(n):]
	}
	return tm, payload, nil
}

// protobufExact says whether protobuf loses nothing of objects of pointer type t. Kubernetes keeps
// the kinds of k8s.io/api as protobuf in etcd, so it holds each field but a TypeMeta below the top
// and an interface, such as a RawExtension's Object. Methods and tags of other types do not prove
// that they fit the fields.
func protobufExact(t reflect.Type) bool {
	s := t.Elem()
	if s != partialType && !strings.HasPrefix(s.PkgPath(), "k8s.io/api/") || !t.Implements(messageType) {
		return false
	}
	if f, ok := s.FieldByName("TypeMeta"); !ok || f.Type != typeMetaType {
		return false
	}
	lost := func(t reflect.Type) bool { return t == typeMetaType || t.Kind() == reflect.Interface }
	for f := range s.Fields() {
		if f.Type != typeMetaType && holds(f.Type, lost, map[reflect.Type]bool{}) {
			return false
		}
	}
	return true
}
