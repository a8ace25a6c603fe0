package kubeapi

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/client-go/kubernetes/scheme"
)

// APIObject is any API object: a Go type, or *unstructured.Unstructured.
type APIObject interface {
	metav1.Object
	runtime.Object
}

// Object is one immutable state of an object. It is safe for concurrent use, and keeps
// the forms in which it has been served.
type Object struct {
	Version         uint64
	Namespace, Name string
	Labels          labels.Set
	// Known are fields for selectors whose values the Storage knows, even if the object
	// does not show them.
	Known []fields.Requirement
	// Again, unless nil, returns the object once more. A watch then does not hold a large
	// one while its client takes it.
	Again func() (*Object, error)

	// from or raw has the object. raw is the protobuf message without its envelope, or
	// for a custom resource the JSON. The other forms are made on demand.
	from                           APIObject
	raw, json, metaJSON, metaProto lazy[[]byte]
	fields                         lazy[fields.Set]
}

// Encode freezes obj, whose resourceVersion is version. It keeps its bytes only.
func (t *Type) Encode(obj APIObject, version uint64) (*Object, error) {
	o := &Object{Version: version, Namespace: obj.GetNamespace(), Name: obj.GetName()}
	if l := obj.GetLabels(); l != nil {
		o.Labels = labels.Merge(l, nil)
	}
	raw, err := t.encode(obj)
	if err != nil {
		return nil, err
	}
	set := selectable(obj)
	o.raw.p.Store(&raw)
	o.fields.p.Store(&set)
	return o, nil
}

// Of is Encode for an object that nobody changes: it is kept, and encoded when needed.
func (t *Type) Of(obj APIObject, version uint64) *Object {
	return &Object{Version: version, Namespace: obj.GetNamespace(), Name: obj.GetName(), Labels: obj.GetLabels(),
		from: obj}
}

// OfMessage is Encode for a protobuf message without its envelope, of a kind that is not
// custom. The object has neither labels nor fields, for a [Selection] of everything.
func OfMessage(namespace, name string, version uint64, raw []byte) *Object {
	o := &Object{Version: version, Namespace: namespace, Name: name}
	o.raw.p.Store(&raw)
	return o
}

func (t *Type) encode(obj APIObject) ([]byte, error) {
	if t.Custom {
		return t.marshalJSON(obj)
	}
	m, ok := obj.(protoMessage)
	if !ok {
		return nil, fmt.Errorf("%s must be given as its Go type, not %T", t.Kind, obj)
	}
	return m.Marshal()
}

// marshalJSON returns obj as JSON with kind and apiVersion, which may lack them.
func (t *Type) marshalJSON(obj APIObject) ([]byte, error) {
	b, err := json.Marshal(obj)
	if err != nil || bytes.HasPrefix(b, []byte(`{"kind":`)) || obj.GetObjectKind().GroupVersionKind().Kind != "" {
		return b, err
	}
	return append([]byte(t.jsonHead), b[1:]...), nil // metadata is always there
}

// Raw returns the object's bytes. The bytes of two objects of a type are equal only if
// the objects are.
func (t *Type) Raw(o *Object) ([]byte, error) {
	return o.raw.get(func() ([]byte, error) { return t.encode(o.from) })
}

// Fields returns the fields of the object that a field selector can name.
func (o *Object) Fields() fields.Set {
	set, _ := o.fields.get(func() (fields.Set, error) { // it never fails
		set := selectable(o.from)
		for _, r := range o.Known {
			switch {
			case r.Operator != selection.NotEquals:
				set[r.Field] = r.Value
			case set[r.Field] == r.Value:
				set[r.Field] = "\x00" // anything else
			}
		}
		return set, nil
	})
	return set
}

// DropEncodings frees the forms that can be computed again.
func (o *Object) DropEncodings() {
	o.json.drop()
	o.metaJSON.drop()
	o.metaProto.drop()
}

// lazy is a value computed when first needed, by one of the goroutines that need it.
type lazy[T any] struct {
	p  atomic.Pointer[T]
	mu sync.Mutex // held while it is computed
}

func (l *lazy[T]) get(compute func() (T, error)) (T, error) {
	if p := l.p.Load(); p != nil {
		return *p, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
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

// NewObject returns an empty object of the kind.
func (t *Type) NewObject() APIObject {
	if !t.Custom {
		if obj, err := scheme.Scheme.New(t.GroupVersionKind); err == nil { // NewType saw that the scheme knows it
			return obj.(APIObject)
		}
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(t.GroupVersionKind)
	return u
}

// Decode fills obj, of the type's Go type or unstructured, from o.
func (t *Type) Decode(o *Object, obj APIObject) error {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		data, err := t.JSON(o)
		if err != nil {
			return err
		}
		return u.UnmarshalJSON(data)
	}
	if t.Custom {
		return fmt.Errorf("kubeapi: cannot decode %s into %T", t.Kind, obj)
	}
	raw, err := t.Raw(o)
	if err != nil {
		return err
	}
	m := obj.(protoMessage)
	m.Reset()
	return m.Unmarshal(raw)
}

// AtVersion returns o with another resourceVersion.
func (t *Type) AtVersion(o *Object, version uint64) (*Object, error) {
	rv := strconv.FormatUint(version, 10)
	if o.from != nil {
		obj := o.from.DeepCopyObject().(APIObject)
		obj.SetResourceVersion(rv)
		return t.Of(obj, version), nil
	}
	obj := t.NewObject()
	if err := t.Decode(o, obj); err != nil {
		return nil, err
	}
	obj.SetResourceVersion(rv)
	return t.Encode(obj, version)
}

// JSON returns o as JSON with kind and apiVersion.
func (t *Type) JSON(o *Object) ([]byte, error) {
	if t.Custom {
		return t.Raw(o)
	}
	return o.json.get(func() ([]byte, error) {
		if o.from != nil {
			return t.marshalJSON(o.from)
		}
		obj := t.NewObject()
		if err := t.Decode(o, obj); err != nil {
			return nil, err
		}
		obj.GetObjectKind().SetGroupVersionKind(t.GroupVersionKind)
		return json.Marshal(obj)
	})
}

// metaProtoOf returns o as a PartialObjectMetadata message.
func (t *Type) metaProtoOf(o *Object) ([]byte, error) {
	if !t.Custom {
		raw, err := t.Raw(o)
		if err != nil {
			return nil, err
		}
		return firstField(raw)
	}
	return o.metaProto.get(func() ([]byte, error) {
		m, err := t.Metadata(o)
		if err != nil {
			return nil, err
		}
		return m.Marshal()
	})
}

// metaJSONOf returns o as a PartialObjectMetadata in JSON.
func (t *Type) metaJSONOf(o *Object) ([]byte, error) {
	return o.metaJSON.get(func() ([]byte, error) {
		m, err := t.Metadata(o)
		if err != nil {
			return nil, err
		}
		m.SetGroupVersionKind(metaKind)
		return json.Marshal(m)
	})
}

// Metadata returns the metadata of o. It may share maps and slices with it.
func (t *Type) Metadata(o *Object) (*metav1.PartialObjectMetadata, error) {
	m := &metav1.PartialObjectMetadata{}
	if of, ok := o.from.(metav1.ObjectMetaAccessor); ok {
		if typed, ok := of.GetObjectMeta().(*metav1.ObjectMeta); ok {
			m.ObjectMeta = *typed
			return m, nil
		}
	}
	raw, err := t.Raw(o)
	switch {
	case err != nil:
		return nil, err
	case t.Custom:
		return m, json.Unmarshal(raw, m)
	}
	data, err := firstField(raw)
	if err != nil {
		return nil, err
	}
	return m, m.Unmarshal(data)
}

// firstField returns field 1 of a message, tag and length included. In every
// API object that is its metadata, as in PartialObjectMetadata.
func firstField(raw []byte) ([]byte, error) {
	if len(raw) < 2 || raw[0] != 1<<3|2 {
		return nil, errors.New("kubeapi: object does not start with its metadata")
	}
	size, n := binary.Uvarint(raw[1:])
	if n <= 0 || size > uint64(len(raw)-1-n) {
		return nil, errors.New("kubeapi: truncated metadata")
	}
	return raw[:1+n+int(size)], nil
}
