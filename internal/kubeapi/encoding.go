package kubeapi

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// encoding is a representation a client can ask for. The zero value is JSON.
type encoding struct {
	proto   bool
	partial bool // PartialObjectMetadata
	table   *table
}

func (enc encoding) media() string {
	if enc.proto {
		return MediaProto
	}
	return MediaJSON
}

// object returns o as the body of an answer or the object of a watch event.
func (t *Type) object(o *Object, enc encoding) ([]byte, error) {
	switch {
	case enc.table != nil:
		return t.tableOf(o, enc, false)
	case enc.proto && enc.partial:
		raw, err := t.metaProtoOf(o)
		return envelope(metaKind, raw), err
	case enc.proto:
		raw, err := t.Raw(o)
		return envelope(t.GroupVersionKind, raw), err
	case enc.partial:
		return t.metaJSONOf(o)
	default:
		return t.JSON(o)
	}
}

// item returns o as an element of a list, where built-in objects carry no kind:
// head and then tail.
func (t *Type) item(o *Object, enc encoding) (head, tail []byte, err error) {
	switch {
	case enc.table != nil:
		tail, err = t.row(o, enc, false)
		return nil, tail, err
	case enc.proto && enc.partial:
		tail, err = t.metaProtoOf(o)
		return itemHead(tail), tail, err
	case enc.proto:
		tail, err = t.Raw(o)
		return itemHead(tail), tail, err
	case enc.partial:
		tail, err = t.metaJSONOf(o)
		return nil, tail, err
	}
	if u, ok := o.from.(*unstructured.Unstructured); ok && t.builtIn {
		content := maps.Clone(u.Object)
		delete(content, "kind")
		delete(content, "apiVersion")
		tail, err = json.Marshal(content)
		return nil, tail, err
	}
	tail, err = t.JSON(o)
	if rest, ok := bytes.CutPrefix(tail, []byte(t.jsonHead)); ok && !t.Custom {
		return []byte("{"), rest, err
	}
	return nil, tail, err
}

// bookmark returns the object of a BOOKMARK event.
func (t *Type) bookmark(rv uint64, initialEventsEnd bool, enc encoding) ([]byte, error) {
	obj := t.NewObject()
	obj.SetResourceVersion(strconv.FormatUint(rv, 10))
	if initialEventsEnd {
		obj.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	}
	o := t.Of(obj, rv)
	if enc.table != nil {
		return t.tableOf(o, enc, initialEventsEnd)
	}
	return t.object(o, enc)
}

// listKind returns the kind of a list of such objects.
func (t *Type) listKind(enc encoding) schema.GroupVersionKind {
	gvk := t.GroupVersionKind
	switch {
	case enc.table != nil:
		return tableKind
	case enc.partial:
		gvk = metaKind
	}
	gvk.Kind += "List"
	return gvk
}

// before is the text before item number i of a list, after the list's head.
func (enc encoding) before(i int) []byte {
	if enc.proto || i == 0 {
		return nil
	}
	return []byte(",")
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
func encodeStatus(st *metav1.Status, enc encoding) ([]byte, error) {
	gvk := schema.GroupVersionKind{Version: "v1", Kind: "Status"}
	if enc.proto {
		raw, err := st.Marshal()
		return envelope(gvk, raw), err
	}
	st = st.DeepCopy()
	st.SetGroupVersionKind(gvk)
	return json.Marshal(st)
}
