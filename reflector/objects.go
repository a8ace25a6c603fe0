package reflector

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/kubewake/kubewake/boltstore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// objectKind is how the server encodes one object.
type objectKind struct {
	proto            bool
	apiVersion, kind string
}

// readPartial reads a list of metadata.
func readPartial(resp *http.Response) (listed []boltstore.Listed, about metav1.ListMeta, err error) {
	media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	form := formOf(media)
	if form == nil {
		return nil, about, fmt.Errorf("%w: it is %q", errNotRaw, media)
	}
	l := form(resp.Body)
	for {
		id, _, err := l.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, about, err
		}
		listed = append(listed, id)
	}
	kind, about, err := l.head()
	if err == nil && kind != partialKind+"List" {
		err = fmt.Errorf("%w: it is a %q", errNotRaw, kind)
	}
	return listed, about, err
}

// object as the server encodes it.
type object struct {
	objectKind
	body []byte
}

func cutLast(path string) (dir, last string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// readObject takes an answer apart.
func readObject(media string, body []byte) (id boltstore.Listed, o object, err error) {
	switch media {
	case "application/vnd.kubernetes.protobuf":
		var u runtime.Unknown
		if !bytes.HasPrefix(body, []byte(protoMagic)) {
			return id, o, fmt.Errorf("%w: an object", errNotRaw)
		}
		if err := u.Unmarshal(body[len(protoMagic):]); err != nil || u.ContentEncoding != "" {
			return id, o, fmt.Errorf("%w: an object: %v", errNotRaw, err)
		}
		o = object{objectKind{true, u.APIVersion, u.Kind}, u.Raw}
		id, err = protoListed(u.Raw)
	case "application/json":
		o = object{body: bytes.TrimSpace(body)}
		var typ metav1.TypeMeta
		if err := json.Unmarshal(body, &typ); err != nil {
			return id, o, fmt.Errorf("%w: an object: %v", errNotRaw, err)
		}
		o.apiVersion, o.kind = typ.APIVersion, typ.Kind
		id, err = jsonListed(o.body)
	default:
		return id, o, fmt.Errorf("%w: an object is %q", errNotRaw, media)
	}
	if err == nil && o.kind == "" {
		err = fmt.Errorf("%w: an object without a kind", errNotRaw)
	}
	return id, o, err
}

// assemble makes a list of the objects. In JSON each tells its type, which in a
// list, as in a watch, those of a Go type have not.
func assemble(kind objectKind, about metav1.ListMeta, got []*change, typed bool) (_ objectKind, list []byte, err error) {
	var bodies [][]byte
	for _, c := range got {
		if c.moved {
			continue
		}
		if kind == (objectKind{}) {
			kind = c.objectKind
		}
		if kind != c.objectKind {
			return kind, nil, fmt.Errorf("%w: %+v and %+v", errNotRaw, kind, c.objectKind)
		}
		body := c.body
		if !kind.proto && !typed {
			if body, err = withoutType(body); err != nil {
				return kind, nil, err
			}
		}
		bodies = append(bodies, body)
	}
	if kind == (objectKind{}) {
		return kind, nil, errInFull // all have gone
	}
	if kind.proto {
		typ, err := (&runtime.TypeMeta{APIVersion: kind.apiVersion, Kind: kind.kind + "List"}).Marshal()
		if err != nil {
			return kind, nil, err
		}
		l := &protoList{typ: typ}
		if l.meta, err = about.Marshal(); err != nil {
			return kind, nil, err
		}
		for _, b := range bodies {
			l.add(b)
		}
		return kind, l.list(), nil
	}
	m, err := json.Marshal(about)
	if err != nil {
		return kind, nil, err
	}
	b := fmt.Appendf(nil, `{"kind":%q,"apiVersion":%q,"metadata":%s,"items":[`, kind.kind+"List", kind.apiVersion, m)
	return kind, append(append(b, bytes.Join(bodies, []byte(","))...), "]}\n"...), nil
}

// withoutType is an object without kind and apiVersion.
func withoutType(item []byte) ([]byte, error) {
	out := make([]byte, 1, len(item))
	out[0] = '{'
	err := jsonMembers(item, 0, func(key string, from, to int) error {
		if key == "kind" || key == "apiVersion" {
			return nil
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(append(out, '"'), key...), `":`...)
		out = append(out, item[from:to]...)
		return nil
	})
	return append(out, '}'), err
}

// head of the list that has been read: its kind, and what it says of itself.
func (l *protoList) head() (kind string, about metav1.ListMeta, err error) {
	var typ runtime.TypeMeta
	if err = typ.Unmarshal(l.typ); err == nil {
		err = about.Unmarshal(l.meta)
	}
	if err != nil {
		err = fmt.Errorf("%w: %v", errNotRaw, err)
	}
	return typ.Kind, about, err
}

func (l *jsonList) head() (kind string, about metav1.ListMeta, err error) {
	err = jsonMembers(l.all, skipSpace(l.all, 0), func(key string, from, to int) error {
		switch key {
		case "kind":
			return json.Unmarshal(l.all[from:to], &kind)
		case "metadata":
			return json.Unmarshal(l.all[from:to], &about)
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("%w: %v", errNotRaw, err)
	}
	return kind, about, err
}
