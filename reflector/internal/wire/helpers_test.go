package wire

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// decodeList is what a client makes of a list.
func decodeList(data []byte) (*corev1.ConfigMapList, error) {
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil, err
	}
	list, ok := obj.(*corev1.ConfigMapList)
	if !ok {
		return nil, fmt.Errorf("a %T", obj)
	}
	return list, nil
}

// encode is what a server makes of an object.
func encode(t testing.TB, media string, obj runtime.Object) []byte {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
	if !ok {
		t.Fatal(media)
	}
	data, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion), obj)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
