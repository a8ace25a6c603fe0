package wire

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestContinue: a list's beginning shows its token as soon as all of it is there, and never
// another one.
func TestContinue(t *testing.T) {
	for _, token := range []string{"", "next", strings.Repeat("x", 300)} {
		list := &corev1.ConfigMapList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"},
			ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: token},
			Items:    []corev1.ConfigMap{{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"metadata": `{"continue":"no"}`}}},
		}
		asJSON, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		asProto, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), list)
		if err != nil {
			t.Fatal(err)
		}
		for media, all := range map[string][]byte{mediaJSON: asJSON, mediaProto: asProto} {
			known := 0
			for n := range len(all) + 1 {
				got, ok := Continue(media, all[:n])
				if ok && got != token {
					t.Fatalf("%s: %q from %d bytes", media, got, n)
				}
				if ok {
					known++
				} else if known > 0 {
					t.Fatalf("%s: not known from %d bytes, and known from fewer", media, n)
				}
			}
			if known == 0 || known < len(all)-len(token)-100 {
				t.Errorf("%s: known only from %d bytes of %d", media, len(all)+1-known, len(all))
			}
		}
	}
	for _, odd := range []string{"", "[]", "null", `{"items":[{"metadata":{}}],"metadata":{"continue":"late"}}`, `{"metadata":7}`, `{"metadata":`, "k8s\x00\x12\x00", "k8s\x00\xff\xff\xff"} {
		for _, media := range []string{mediaJSON, mediaProto} {
			if token, ok := Continue(media, []byte(odd)); ok {
				t.Errorf("%s: %q of %q", media, token, odd)
			}
		}
	}
}

// FuzzContinue: more of a list does not change its token.
func FuzzContinue(f *testing.F) {
	f.Add([]byte(`{"kind":"List","metadata":{"continue":"next"},"items":[]}`), 50)
	f.Add([]byte("k8s\x00\n\x00\x12\x08\n\x06\x1a\x04next"), 18)
	f.Fuzz(func(t *testing.T, all []byte, n int) {
		if n < 0 || n > len(all) {
			return
		}
		for _, media := range []string{mediaJSON, mediaProto} {
			if token, ok := Continue(media, all[:n]); ok {
				if got, ok := Continue(media, all); !ok || got != token {
					t.Errorf("%s: %q %v, and %q from the first %d bytes", media, got, ok, token, n)
				}
			}
		}
	})
}
