package wire

import (
	"bytes"
	"errors"
	"testing"

	"github.com/kubewake/kubewake/internal/listing"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// FuzzReadObject: any bytes for an object either have another form or can be put into a
// list, which gives the same object when it is read.
func FuzzReadObject(f *testing.F) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns", UID: "u", ResourceVersion: "1"},
		Data: map[string]string{"k": "v"}}
	f.Add(false, encode(f, mediaProto, cm))
	f.Add(true, encode(f, mediaJSON, cm))
	f.Add(true, []byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":null}`))
	f.Add(true, []byte(`{"kind":"","metadata":{"name":"a"}}`))
	f.Fuzz(func(t *testing.T, asJSON bool, data []byte) {
		media := mediaProto
		if asJSON {
			media = mediaJSON
		}
		id, o, err := ReadObject(media, data)
		if err != nil {
			if !errors.Is(err, ErrForm) {
				t.Fatal(err)
			}
			return
		}
		for _, typed := range []bool{false, true} {
			as, list, err := List(o.Kind, metav1.ListMeta{ResourceVersion: "7"}, []Object{o, o}, typed)
			if err != nil || as != media {
				t.Fatalf("%q: %v", as, err)
			}
			var ids []listing.Object
			if _, err = Sift(media, bytes.NewReader(list), func(ls []listing.Object) ([]listing.Match, error) {
				ids = append(ids, ls...)
				return make([]listing.Match, len(ls)), nil
			}); err != nil || len(ids) != 2 || ids[0] != id || ids[1] != id {
				t.Fatalf("%+v and %v, want %+v\n%q\n%q", ids, err, id, data, list)
			}
		}
	})
}
