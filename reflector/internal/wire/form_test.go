package wire

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/internal/listing"
)

// TestForms: what is a list of the API is read, however it is spaced. Anything else is
// ErrForm, and left to the client.
func TestForms(t *testing.T) {
	list := encode(t, mediaProto, &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"},
		Items: []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "b"}}}})
	message := func(raw string) []byte { // a list of these bytes
		u := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, Raw: []byte(raw)}
		b, err := u.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte(protoMagic), b...)
	}
	encoded := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"},
		ContentEncoding: "gzip", Raw: []byte("\x0a\x00")}
	packed, err := encoded.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, media string
		list        []byte
		names       []string // nil: it is ErrForm
	}{
		{"spaced", mediaJSON, []byte("\r\n{\t\"items\" \r\n:\t[ \r{\"metadata\"\t: {\"name\" :\"a\"}\n}\r\n,\t{ " +
			"\"metadata\":{\"name\":\"b\"\r}} \n]\r}\t"), []string{"a", "b"}},
		{"items first, and odd values", mediaJSON,
			[]byte(`{"items":[{"metadata":{"labels":{"]":"}\""},"name":"a"},"x":[[],{},-1,true,null,"\\"]}],"metadata":{}}`), []string{"a"}},
		{"null for items", mediaJSON, []byte(`{"items":null}`), []string{}},
		{"no items", mediaJSON, []byte(`{"kind":"Status"}`), []string{}},
		{"metadata that is none", mediaJSON, []byte(`{"items":[{"metadata":"name"},{"metadata":null},{}]}`),
			[]string{"", "", ""}},
		{"two arrays", mediaJSON, []byte(`{"items":[{"metadata":{"name":"a"}}],"items":[]}`), nil},
		{"an object for items", mediaJSON, []byte(`{"items":{"metadata":{}}}`), nil},
		{"numbers", mediaJSON, []byte(`{"items":[1]}`), nil},
		{"texts", mediaJSON, []byte(`{"items":["a"]}`), nil},
		{"a comma first", mediaJSON, []byte(`{"items":[,{}]}`), nil},
		{"a key without quotes", mediaJSON, []byte(`{items:[]}`), nil},
		{"no colon", mediaJSON, []byte(`{"items" []}`), nil},
		{"no comma between members", mediaJSON, []byte(`{"a":1 "items":[]}`), nil},
		{"a name that is no text", mediaJSON, []byte(`{"items":[{"metadata":{"name":1}}]}`), nil},
		{"an open text", mediaJSON, []byte(`{"items":[{"metadata":{"name":"a`), nil},
		{"an open key", mediaJSON, []byte(`{"items`), nil},
		{"an open array", mediaJSON, []byte(`{"items":[{}`), nil},
		{"an array", mediaJSON, []byte(`[]`), nil},
		{"nothing", mediaJSON, nil, nil},

		{"protobuf", mediaProto, list, []string{"a", "b"}},
		{"no items", mediaProto, message("\x0a\x00"), []string{}},
		{"another magic", mediaProto, append([]byte("k8t\x00"), list[4:]...), nil},
		{"cut", mediaProto, list[:len(list)-6], nil},
		{"items before metadata", mediaProto, message("\x12\x02\x0a\x00\x0a\x00"), nil},
		{"metadata twice", mediaProto, message("\x0a\x00\x0a\x00"), nil},
		{"an unknown field", mediaProto, message("\x0a\x00\x1a\x00"), nil},
		{"an item without metadata", mediaProto, message("\x0a\x00\x12\x02\x12\x00"), nil},
		{"an item whose metadata is a number", mediaProto, message("\x0a\x00\x12\x02\x08\x00"), nil},
		{"an item whose metadata is cut", mediaProto, message("\x0a\x00\x12\x02\x0a\x05"), nil},
		{"an item whose name is a number", mediaProto, message("\x0a\x00\x12\x04\x0a\x02\x08\x01"), nil},
		{"a field beyond the message", mediaProto, message("\x0a\x00\x12\x7f"), nil},
		{"an encoded message", mediaProto, append([]byte(protoMagic), packed...), nil},
		{"another media type", "text/html", []byte("<html>"), nil},
	} {
		t.Run(c.media+" "+c.name, func(t *testing.T) {
			names := []string{}
			_, err := Sift(c.media, bytes.NewReader(c.list), func(ls []listing.Object) ([]listing.Match, error) {
				for _, l := range ls {
					names = append(names, l.Name)
				}
				return make([]listing.Match, len(ls)), nil
			})
			if c.names == nil {
				if !errors.Is(err, ErrForm) {
					t.Errorf("%q, %v", names, err)
				}
			} else if err != nil || !slices.Equal(names, c.names) {
				t.Errorf("%q, %v", names, err)
			}
		})
	}
}

// TestObjectForms: an object without a kind, and one in an encoding, cannot be put into a list.
func TestObjectForms(t *testing.T) {
	for name, u := range map[string]runtime.Unknown{
		"no kind": {TypeMeta: runtime.TypeMeta{APIVersion: "v1"}, Raw: []byte("\x0a\x00")},
		"encoded": {TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ContentEncoding: "gzip",
			Raw: []byte("\x0a\x00")},
		"no metadata": {TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}},
	} {
		b, err := u.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadObject(mediaProto, append([]byte(protoMagic), b...)); !errors.Is(err, ErrForm) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, body := range []string{`{"metadata":{"name":"a"}}`, `{"kind":"ConfigMap"`, `[]`, ``} {
		if _, _, err := ReadObject(mediaJSON, []byte(body)); !errors.Is(err, ErrForm) {
			t.Errorf("%s: %v", body, err)
		}
	}
}
