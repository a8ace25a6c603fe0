package kubesim

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Object is any API object: a Go type of client-go's scheme, or
// *unstructured.Unstructured for a custom resource.
type Object interface {
	metav1.Object
	runtime.Object
}

// version is one immutable state of an object.
type version struct {
	rv              uint64
	deleted         bool
	namespace, name string
	labels          labels.Set
	fields          fields.Set

	// raw is the protobuf message without its envelope, or for a custom resource the
	// JSON. The other forms are derived from it on demand.
	raw                       []byte
	json, metaJSON, metaProto lazy[[]byte]
}

func (v *version) dropEncodings() {
	v.json.drop()
	v.metaJSON.drop()
	v.metaProto.drop()
}

// lazy is a value computed when first needed, perhaps by several goroutines at
// once with equal results.
type lazy[T any] struct{ p atomic.Pointer[T] }

func (l *lazy[T]) get(compute func() (T, error)) (T, error) {
	if p := l.p.Load(); p != nil {
		return *p, nil
	}
	v, err := compute()
	if err == nil {
		l.p.Store(&v)
	}
	return v, err
}

func (l *lazy[T]) drop() { l.p.Store(nil) }

// kindCodec translates between the Go objects of one kind and their encodings.
type kindCodec struct {
	gvk      schema.GroupVersionKind
	custom   bool
	jsonHead string // what the JSON of a built-in object starts with
}

type protoMessage interface {
	Reset()
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

var metaKind = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")

func newKindCodec(gvk schema.GroupVersionKind) *kindCodec {
	return &kindCodec{
		gvk:      gvk,
		custom:   !scheme.Scheme.Recognizes(gvk),
		jsonHead: fmt.Sprintf(`{"kind":%q,"apiVersion":%q,`, gvk.Kind, gvk.GroupVersion().String()),
	}
}

// newObject returns an empty object of the kind.
func (k *kindCodec) newObject() Object {
	if k.custom {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(k.gvk)
		return u
	}
	obj, err := scheme.Scheme.New(k.gvk)
	if err != nil {
		panic(err) // newKindCodec saw that the scheme knows it
	}
	return obj.(Object)
}

// encode freezes obj, whose resourceVersion is rv.
func (k *kindCodec) encode(obj Object, rv uint64) (*version, error) {
	v := &version{
		rv:        rv,
		namespace: obj.GetNamespace(),
		name:      obj.GetName(),
		labels:    labels.Set(obj.GetLabels()),
		fields:    selectable(obj),
	}
	var err error
	if k.custom {
		v.raw, err = json.Marshal(obj)
	} else {
		m, ok := obj.(protoMessage)
		if !ok {
			return nil, fmt.Errorf("%s must be given as its Go type, not %T", k.gvk.Kind, obj)
		}
		v.raw, err = m.Marshal()
	}
	if v.labels != nil {
		v.labels = labels.Merge(v.labels, nil)
	}
	return v, err
}

// decode fills obj, of the codec's kind, from v.
func (k *kindCodec) decode(v *version, obj Object) error {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		data, err := k.jsonOf(v)
		if err != nil {
			return err
		}
		return u.UnmarshalJSON(data)
	}
	if k.custom {
		return fmt.Errorf("kubesim: cannot decode %s into %T", k.gvk.Kind, obj)
	}
	m := obj.(protoMessage)
	m.Reset()
	return m.Unmarshal(v.raw)
}

// atRevision returns v with another resourceVersion.
func (k *kindCodec) atRevision(v *version, rv uint64) (*version, error) {
	obj := k.newObject()
	if err := k.decode(v, obj); err != nil {
		return nil, err
	}
	obj.SetResourceVersion(strconv.FormatUint(rv, 10))
	return k.encode(obj, rv)
}

// jsonOf returns v as JSON with kind and apiVersion.
func (k *kindCodec) jsonOf(v *version) ([]byte, error) {
	if k.custom {
		return v.raw, nil
	}
	return v.json.get(func() ([]byte, error) {
		obj := k.newObject()
		if err := k.decode(v, obj); err != nil {
			return nil, err
		}
		obj.GetObjectKind().SetGroupVersionKind(k.gvk)
		return json.Marshal(obj)
	})
}

// metaProtoOf returns v as a PartialObjectMetadata message.
func (k *kindCodec) metaProtoOf(v *version) ([]byte, error) {
	if !k.custom {
		return firstField(v.raw)
	}
	return v.metaProto.get(func() ([]byte, error) {
		m, err := k.metadata(v)
		if err != nil {
			return nil, err
		}
		return m.Marshal()
	})
}

// metaJSONOf returns v as a PartialObjectMetadata in JSON.
func (k *kindCodec) metaJSONOf(v *version) ([]byte, error) {
	return v.metaJSON.get(func() ([]byte, error) {
		m, err := k.metadata(v)
		if err != nil {
			return nil, err
		}
		m.SetGroupVersionKind(metaKind)
		return json.Marshal(m)
	})
}

func (k *kindCodec) metadata(v *version) (*metav1.PartialObjectMetadata, error) {
	m := &metav1.PartialObjectMetadata{}
	if k.custom {
		return m, json.Unmarshal(v.raw, m)
	}
	data, err := firstField(v.raw)
	if err != nil {
		return nil, err
	}
	return m, m.Unmarshal(data)
}

// firstField returns field 1 of a message, tag and length included. In every
// API object that is its metadata, as in PartialObjectMetadata.
func firstField(raw []byte) ([]byte, error) {
	if len(raw) < 2 || raw[0] != 1<<3|2 {
		return nil, errors.New("kubesim: object does not start with its metadata")
	}
	size, n := binary.Uvarint(raw[1:])
	if n <= 0 || size > uint64(len(raw)-1-n) {
		return nil, errors.New("kubesim: truncated metadata")
	}
	return raw[:1+n+int(size)], nil
}

// encoding is a representation a client can ask for.
type encoding struct {
	proto   bool
	partial bool // PartialObjectMetadata
}

// object returns v as the body of an answer or the object of a watch event.
func (k *kindCodec) object(v *version, enc encoding) ([]byte, error) {
	switch {
	case enc.proto && enc.partial:
		raw, err := k.metaProtoOf(v)
		return envelope(metaKind, raw), err
	case enc.proto:
		return envelope(k.gvk, v.raw), nil
	case enc.partial:
		return k.metaJSONOf(v)
	default:
		return k.jsonOf(v)
	}
}

// item returns v as an element of a list, where built-in objects carry no kind:
// head and then tail.
func (k *kindCodec) item(v *version, enc encoding) (head, tail []byte, err error) {
	switch {
	case enc.proto && enc.partial:
		tail, err = k.metaProtoOf(v)
		return itemHead(tail), tail, err
	case enc.proto:
		return itemHead(v.raw), v.raw, nil
	case enc.partial:
		tail, err = k.metaJSONOf(v)
		return nil, tail, err
	}
	tail, err = k.jsonOf(v)
	if rest, ok := bytes.CutPrefix(tail, []byte(k.jsonHead)); ok && !k.custom {
		return []byte("{"), rest, err
	}
	return nil, tail, err
}

// bookmark returns the object of a BOOKMARK event.
func (k *kindCodec) bookmark(rv uint64, initialEventsEnd bool, enc encoding) ([]byte, error) {
	obj := k.newObject()
	obj.SetResourceVersion(strconv.FormatUint(rv, 10))
	if initialEventsEnd {
		obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	v, err := k.encode(obj, rv)
	if err != nil {
		return nil, err
	}
	return k.object(v, enc)
}

// listKind returns the kind of a list of such objects.
func (k *kindCodec) listKind(partial bool) schema.GroupVersionKind {
	gvk := k.gvk
	if partial {
		gvk = metaKind
	}
	gvk.Kind += "List"
	return gvk
}

// itemHead is the tag and length of element raw: field 2 of every list.
func itemHead(raw []byte) []byte {
	return binary.AppendUvarint([]byte{2<<3 | 2}, uint64(len(raw)))
}

// envelopeHead starts a protobuf body: the magic number and a runtime.Unknown
// up to the length of its raw field.
func envelopeHead(gvk schema.GroupVersionKind, rawLen int) []byte {
	var typ []byte
	typ = appendBytes(typ, 1, []byte(gvk.GroupVersion().String()))
	typ = appendBytes(typ, 2, []byte(gvk.Kind))
	b := appendBytes([]byte("k8s\x00"), 1, typ)
	return binary.AppendUvarint(append(b, 2<<3|2), uint64(rawLen))
}

// envelopeTail ends it: an empty content encoding and content type.
var envelopeTail = []byte{3<<3 | 2, 0, 4<<3 | 2, 0}

func envelope(gvk schema.GroupVersionKind, raw []byte) []byte {
	b := envelopeHead(gvk, len(raw))
	b = append(b, raw...)
	return append(b, envelopeTail...)
}

func appendBytes(b []byte, field byte, value []byte) []byte {
	b = binary.AppendUvarint(append(b, field<<3|2), uint64(len(value)))
	return append(b, value...)
}

// encodeStatus returns a metav1.Status as a body or the object of an event.
func encodeStatus(st *metav1.Status, proto bool) ([]byte, error) {
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "Status"}
	if proto {
		raw, err := st.Marshal()
		return envelope(gvk, raw), err
	}
	st = st.DeepCopy()
	st.SetGroupVersionKind(gvk)
	return json.Marshal(st)
}

// selectable returns the fields of obj that a field selector can name.
func selectable(obj Object) fields.Set {
	set := fields.Set{"metadata.name": obj.GetName()}
	switch o := obj.(type) {
	case *corev1.Namespace:
		set["status.phase"] = string(o.Status.Phase)
		return set
	case *corev1.Node:
		set["spec.unschedulable"] = strconv.FormatBool(o.Spec.Unschedulable)
		return set
	case *corev1.Pod:
		set["spec.nodeName"] = o.Spec.NodeName
		set["spec.restartPolicy"] = string(o.Spec.RestartPolicy)
		set["spec.schedulerName"] = o.Spec.SchedulerName
		set["spec.serviceAccountName"] = o.Spec.ServiceAccountName
		set["spec.hostNetwork"] = strconv.FormatBool(o.Spec.HostNetwork)
		set["status.phase"] = string(o.Status.Phase)
		set["status.podIP"] = o.Status.PodIP
		set["status.nominatedNodeName"] = o.Status.NominatedNodeName
	case *corev1.Secret:
		set["type"] = string(o.Type)
	case *corev1.Service:
		set["spec.clusterIP"] = o.Spec.ClusterIP
		set["spec.type"] = string(o.Spec.Type)
	}
	set["metadata.namespace"] = obj.GetNamespace()
	return set
}
