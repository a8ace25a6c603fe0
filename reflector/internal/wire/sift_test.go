package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/kubewake/kubewake/internal/listing"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSift: the other list is the first one without the unchanged objects.
func TestSift(t *testing.T) {
	odd := "a \"quoted\" \\ {[ü, 世界]} \n"
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "77", Continue: "more",
		RemainingItemCount: new(int64(3))}}
	for i := range 50 {
		list.Items = append(list.Items, corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprint("cm", i), Namespace: "ns", UID: "uid", ResourceVersion: fmt.Sprint(i),
				Labels:          map[string]string{"metadata": odd, "uid": "none"},
				OwnerReferences: []metav1.OwnerReference{{Name: "owner", UID: "owner"}},
			},
			Data: map[string]string{odd: odd, "items": "[", "metadata": `{"name":"x"}`},
		})
	}
	for _, media := range []string{mediaProto, mediaJSON} {
		for _, every := range []int{1, 2, 7, 100} {
			isSame := func(l listing.Object) bool { return len(l.ResourceVersion)%2 == 1 && every < 100 || every == 1 }
			same := func(ls []listing.Object) ([]listing.Match, error) {
				var out []listing.Match
				for _, l := range ls {
					out = append(out, listing.MatchDiffers)
					if l.Namespace != "ns" || l.UID != "uid" || l.Name != "cm"+l.ResourceVersion {
						t.Errorf("%+v", l)
					}
					if isSame(l) {
						out[len(out)-1] = listing.MatchSame
					}
				}
				return out, nil
			}
			s, err := Sift(media, bytes.NewReader(encode(t, media, list)), same)
			if err != nil {
				t.Fatal(err)
			}
			got, err := decodeList(s.Rest)
			if err != nil {
				t.Fatal(err)
			}
			want := list.DeepCopy()
			want.TypeMeta = got.TypeMeta
			want.Items = slices.DeleteFunc(want.Items, func(c corev1.ConfigMap) bool {
				return isSame(listing.Object{ResourceVersion: c.ResourceVersion})
			})
			for i := range got.Items {
				got.Items[i].TypeMeta = metav1.TypeMeta{}
			}
			if !apiequality.Semantic.DeepEqual(got, want) || len(s.Kept)+len(got.Items) != 50 {
				t.Errorf("%s, %d: %d kept, %d passed", media, every, len(s.Kept), len(got.Items))
			}
		}
	}
}

// FuzzSift: with any bytes, nothing is lost: if the client understands a list, it
// understands the other one, and the two together have all items.
func FuzzSift(f *testing.F) {
	list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}
	f.Add(false, encode(f, mediaProto, list))
	f.Add(true, encode(f, mediaJSON, list))
	for i := range 3 {
		list.Items = append(list.Items,
			corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("cm", i), UID: "u", ResourceVersion: "1"}})
	}
	f.Add(false, encode(f, mediaProto, list))
	f.Add(true, encode(f, mediaJSON, list))
	f.Add(true, []byte(`{"items":null}`))
	f.Add(true, []byte(`{"kind":"ConfigMapList","apiVersion":"v1","items":[ {"metadata":{"name":"a\"","uid":"u","resourceVersion":"1"}} , {} ],"x":[1,-2e3,true]}`))
	f.Fuzz(func(t *testing.T, asJSON bool, data []byte) {
		media := mediaProto
		if asJSON {
			media = mediaJSON
		}
		even := func(l listing.Object) bool { return strings.HasSuffix(l.Name, "0") }
		same := func(ls []listing.Object) ([]listing.Match, error) {
			out := make([]listing.Match, len(ls))
			for i, l := range ls {
				if even(l) {
					out[i] = listing.MatchSame
				}
			}
			return out, nil
		}
		s, err := Sift(media, bytes.NewReader(data), same)
		if err != nil {
			return // left to the client
		}
		if asJSON && !json.Valid(data) {
			return // omitted parts may be anything
		}
		want, err := decodeList(data)
		if err != nil {
			return
		}
		got, err := decodeList(s.Rest)
		if err != nil {
			t.Fatalf("the rest cannot be decoded: %v\n%q\n%q", err, data, s.Rest)
		}
		if len(got.Items)+len(s.Kept) != len(want.Items) ||
			got.ListMeta.ResourceVersion != want.ListMeta.ResourceVersion {
			t.Fatalf("%d items, %d kept, of %d\n%q", len(got.Items), len(s.Kept), len(want.Items), data)
		}
	})
}

// TestFilterEndsOnce: a body that breaks off says so to each read, and once to the caller.
func TestFilterEndsOnce(t *testing.T) {
	for _, tc := range []struct {
		name string
		body io.Reader
		form bool
	}{
		{"link", io.MultiReader(strings.NewReader(protoMagic), iotest.ErrReader(io.ErrUnexpectedEOF)), false},
		{"another form", strings.NewReader("k8s\x00xyz"), true},
		{"cut short", strings.NewReader(protoMagic), true},
	} {
		resp := &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {mediaProto}},
			Body: io.NopCloser(tc.body)}
		var ends []error
		Filter(resp, nil, func(_ Sifted, err error) { ends = append(ends, err) })
		for range 2 {
			if _, err := resp.Body.Read(make([]byte, 10)); err == nil || errors.Is(err, ErrForm) != tc.form {
				t.Errorf("%s: %v", tc.name, err)
			}
		}
		if len(ends) != 1 || errors.Is(ends[0], ErrForm) != tc.form {
			t.Errorf("%s: it has ended with %v", tc.name, ends)
		}
	}
}
