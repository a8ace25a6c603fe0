package codec_test

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore/codec"
)

// sized is a custom resource with Quantities. The server keeps their text as it was written.
type sized struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Size  resource.Quantity             `json:"size"`
	Most  *resource.Quantity            `json:"most,omitempty"`
	Sizes map[string]resource.Quantity  `json:"sizes,omitempty"`
	Unset resource.Quantity             `json:"unset"`
	Deep  struct{ Q resource.Quantity } `json:"deep"`
}

func (s *sized) DeepCopyObject() runtime.Object { c := *s; return &c }

// TestQuantitiesComeBackWhole: a hash of an object that takes in hidden fields, as that of
// Kubernetes' DeepHashObject, is the same before and after the file.
func TestQuantitiesComeBackWhole(t *testing.T) {
	c, err := codec.For(&sized{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{
		"0", "1", "100m", "1Gi", "1e3", "0.5", ".5", "0.50", "0.500", "+0.5", "-0.5", "1.0", "00.5", "1000m", "5000m", "1500m", "1.5k", "0.5k", "1000k",
		"1024Mi", "1536Mi", "1.5Gi", "1.50Gi", "0.5Gi", "8Ti", "1024Ti", "-1024Mi", "0Gi", "0m", "0.0", "0e3", "5e-1", "5E2", "1000e3", "0.0001e3",
		"1.1234567891", "0.1n", "12345678901234567890", "1234567890123456789.5", "7.5Ei", "1E", "1000000", "0.5u", "-0", "2500000000n",
	} {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			t.Fatal(text, err)
		}
		obj := &sized{Size: q.DeepCopy(), Most: new(q.DeepCopy()), Sizes: map[string]resource.Quantity{"a": q.DeepCopy()}}
		obj.Deep.Q = q.DeepCopy()
		b, err := c.Append(nil, obj)
		if err != nil {
			t.Fatal(text, err)
		}
		got, err := c.Decode(b)
		if err != nil {
			t.Fatal(text, err)
		}
		if !reflect.DeepEqual(got, obj) {
			t.Errorf("%s: it was %#v, and is %#v", text, obj.Size, got.(*sized).Size)
		}
	}
}
