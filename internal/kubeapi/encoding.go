package kubeapi

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1beta1 "k8s.io/apimachinery/pkg/apis/meta/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// encoding is a representation a client can ask for. The zero value is JSON.
type encoding struct {
	proto, yaml bool
	partial     bool // PartialObjectMetadata
	table       *table
	beta        bool // of these two, in version v1beta1
	pretty      bool // JSON with lines and indentation; it is not in a watch
}

// indented is JSON with lines and indentation. All lines but the first begin with prefix.
func indented(data []byte, prefix string) []byte {
	var out bytes.Buffer
	if err := json.Indent(&out, data, prefix, "  "); err != nil {
		return data // it was just encoded, so this does not happen
	}
	return out.Bytes()
}

// metaOf is a kind of the group meta.k8s.io, in the version that was asked for.
func (enc encoding) metaOf(kind string) schema.GroupVersionKind {
	if enc.beta {
		return metav1beta1.SchemeGroupVersion.WithKind(kind)
	}
	return metav1.SchemeGroupVersion.WithKind(kind)
}

func (enc encoding) media() string {
	switch {
	case enc.proto:
		return MediaProto
	case enc.yaml:
		return MediaYAML
	}
	return MediaJSON
}

// object returns o as the body of an answer or the object of a watch event.
func (t *Type) object(o *Object, enc encoding) ([]byte, error) {
	switch {
	case enc.yaml:
		enc.yaml = false
		return yamlOf(t.object(o, enc))
	case enc.table != nil:
		return t.tableOf(o, enc, false)
	case enc.proto && enc.partial:
		raw, err := t.metaProtoOf(o)
		return envelope(enc.metaOf(metaKind.Kind), raw), err
	case enc.proto:
		raw, err := t.Raw(o)
		return envelope(t.GroupVersionKind, raw), err
	case enc.partial:
		return t.metaJSONOf(o, enc)
	default:
		return t.JSON(o)
	}
}

// item returns o as an element of a list, where built-in objects carry no kind:
// head and then tail.
func (t *Type) item(o *Object, enc encoding) (head, tail []byte, err error) {
	switch {
	case enc.pretty:
		enc.pretty = false
		if head, tail, err = t.item(o, enc); err != nil {
			return nil, nil, err
		}
		return nil, indented(slices.Concat(head, tail), "    "), nil
	case enc.yaml:
		enc.yaml = false
		head, tail, err = t.item(o, enc)
		tail, err = yamlItem(slices.Concat(head, tail), err)
		return nil, tail, err
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
		tail, err = t.metaJSONOf(o, enc)
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
		return enc.metaOf(tableKind.Kind)
	case enc.partial:
		gvk = enc.metaOf(metaKind.Kind)
	}
	gvk.Kind += "List"
	return gvk
}

// before is the text before item number i of a list, after the list's head.
func (enc encoding) before(i int) []byte {
	switch {
	case enc.pretty && i == 0:
		return []byte("\n    ")
	case enc.pretty:
		return []byte(",\n    ")
	case enc.yaml && i == 0:
		return []byte("\n")
	case enc.yaml, enc.proto, i == 0:
		return nil
	}
	return []byte(",")
}

// after is the text after the last of n items.
func (enc encoding) after(n int) []byte {
	switch {
	case enc.yaml && n == 0:
		return []byte(" []\n")
	case enc.pretty && n > 0:
		return []byte("\n  ")
	}
	return nil
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
	b, err := json.Marshal(st)
	if enc.yaml {
		return yamlOf(b, err)
	}
	return b, err
}
