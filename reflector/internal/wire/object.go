package wire

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"

	"github.com/kubewake/kubewake/internal/listing"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PartialKind is the kind of an object's metadata alone.
const PartialKind = "PartialObjectMetadata"

// Kind is the type of an object, and how the server encodes it.
type Kind struct {
	proto            bool
	apiVersion, kind string
}

// KindOf is the type of the objects in an answer.
func KindOf(resp *http.Response, apiVersion, kind string) Kind {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	return Kind{media == mediaProto, apiVersion, kind}
}

// Object is one object as the server encodes it.
type Object struct {
	Kind
	body []byte
}

// ReadMetadata reads a list of metadata to its end. held is how many of its bytes count
// as memory.
func ReadMetadata(resp *http.Response) (listed []listing.Object, about metav1.ListMeta, held int64, err error) {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if !Known(media) {
		return nil, about, 0, fmt.Errorf("%w: it is %q", ErrForm, media)
	}
	l := newList(media, resp.Body)
	for {
		id, _, err := l.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, about, 0, err
		}
		listed = append(listed, id)
	}
	kind, about, err := l.head()
	if err == nil && kind != PartialKind+"List" {
		err = fmt.Errorf("%w: it is a %q", ErrForm, kind)
	}
	return listed, about, l.held(), err
}

// ReadObject reads the answer to the request for one object.
func ReadObject(media string, body []byte) (id listing.Object, o Object, err error) {
	switch media {
	case mediaProto:
		var u runtime.Unknown
		if !bytes.HasPrefix(body, []byte(protoMagic)) {
			return id, o, fmt.Errorf("%w: an object", ErrForm)
		}
		if err := u.Unmarshal(body[len(protoMagic):]); err != nil || u.ContentEncoding != "" {
			return id, o, fmt.Errorf("%w: an object: %v", ErrForm, err)
		}
		o = Object{Kind{true, u.APIVersion, u.Kind}, u.Raw}
		id, err = protoListed(u.Raw)
	case mediaJSON:
		o = Object{body: bytes.TrimSpace(body)}
		var typ metav1.TypeMeta
		if err := json.Unmarshal(body, &typ); err != nil {
			return id, o, fmt.Errorf("%w: an object: %v", ErrForm, err)
		}
		o.apiVersion, o.kind = typ.APIVersion, typ.Kind
		id, err = jsonListed(o.body)
	default:
		return id, o, fmt.Errorf("%w: an object is %q", ErrForm, media)
	}
	if err == nil && o.kind == "" {
		err = fmt.Errorf("%w: an object without a kind", ErrForm)
	}
	return id, o, err
}

// List encodes a list of the objects, all of the given kind, with the metadata in about.
// It returns the list's media type. In JSON the items name their type only if typed is
// true: in the API's own lists, items of Go types do not.
func List(kind Kind, about metav1.ListMeta, objects []Object, typed bool) (media string, list []byte, err error) {
	bodies := make([][]byte, 0, len(objects))
	for _, o := range objects {
		if o.Kind != kind {
			return "", nil, fmt.Errorf("%w: %+v and %+v", ErrForm, kind, o.Kind)
		}
		body := o.body
		if !kind.proto && !typed {
			if body, err = withoutType(body); err != nil {
				return "", nil, err
			}
		}
		bodies = append(bodies, body)
	}
	if kind.proto {
		typ, err := (&runtime.TypeMeta{APIVersion: kind.apiVersion, Kind: kind.kind + "List"}).Marshal()
		if err != nil {
			return "", nil, err
		}
		l := &protoList{typ: typ}
		if l.meta, err = about.Marshal(); err != nil {
			return "", nil, err
		}
		for _, b := range bodies {
			l.add(b)
		}
		return mediaProto, l.other(), nil
	}
	m, err := json.Marshal(about)
	if err != nil {
		return "", nil, err
	}
	b := fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, kind.kind+"List", kind.apiVersion, m)
	return mediaJSON, append(append(b, bytes.Join(bodies, []byte(","))...), "]}\n"...), nil
}
