package codec_test

import (
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/codec"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Widget is a custom resource with all that Go allows.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec WidgetSpec `json:"spec"`
}

type WidgetSpec struct {
	Shared    `json:",inline"`
	*Optional `json:",inline"`

	Int8     int8                         `json:"int8"`
	Uint     uint64                       `json:"uint"`
	Float32  float32                      `json:"float32"`
	Bytes    []byte                       `json:"bytes"`
	Array    [3]string                    `json:"array"`
	Ptr      **int                        `json:"ptr"`
	PtrSlice *[]string                    `json:"ptrSlice"`
	Matrix   [][]*int                     `json:"matrix"`
	ByNumber map[int16]resource.Quantity  `json:"byNumber"`
	ByAddr   map[netip.Addr]*Shared       `json:"byAddr"`
	Any      any                          `json:"any"`
	Raw      json.RawMessage              `json:"raw"`
	Own      Temperature                  `json:"own"`
	PtrOwn   *Temperature                 `json:"ptrOwn"`
	Owns     []Temperature                `json:"owns"`
	Addr     netip.Addr                   `json:"addr"`
	Std      time.Time                    `json:"std"`
	Wait     metav1.Duration              `json:"wait"`
	At       metav1.Time                  `json:"at"`
	PtrAt    *metav1.Time                 `json:"ptrAt"`
	Micro    metav1.MicroTime             `json:"micro"`
	Port     intstr.IntOrString           `json:"port"`
	Ext      runtime.RawExtension         `json:"ext"`
	Template unstructured.Unstructured    `json:"template"`
	Children []WidgetSpec                 `json:"children"`
	Parent   *WidgetSpec                  `json:"-"`
	Labels   map[Name]map[string][]string `json:"labels"`
	Clash    string                       `json:"shared"`
}

type (
	Name     string
	Shared   struct{ Field string }
	Optional struct {
		Shared string `json:"shared"`
	}
)

// Temperature hides its content from everything but its own marshaler.
type Temperature struct{ kelvin float64 }

func (t Temperature) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]float64{"K": t.kelvin})
}

func (t *Temperature) UnmarshalJSON(b []byte) error {
	var m map[string]float64
	err := json.Unmarshal(b, &m)
	t.kelvin = m["K"]
	return err
}

func (w *Widget) DeepCopyObject() runtime.Object { c := *w; return &c }

func widget() *Widget {
	one, list, temp := 1, []string(nil), Temperature{77}
	ptr := &one
	at := metav1.Unix(5, 6)
	return &Widget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "example.org/v1", Kind: "Widget"},
		ObjectMeta: metav1.ObjectMeta{Name: "w", Annotations: map[string]string{"z": "", "a": "\x00"}},
		Spec: WidgetSpec{
			Shared: Shared{"shared"}, Optional: &Optional{"optional"}, Clash: "clash",
			Int8: math.MinInt8, Uint: math.MaxUint64, Float32: math.SmallestNonzeroFloat32,
			Bytes: []byte{0xFF, 0}, Array: [3]string{"", "b"}, Ptr: &ptr, PtrSlice: &list,
			Matrix:   [][]*int{nil, {}, {nil, &one}},
			ByNumber: map[int16]resource.Quantity{-1: resource.MustParse("1.5Gi"), 1: resource.MustParse("3m")},
			ByAddr:   map[netip.Addr]*Shared{netip.MustParseAddr("::1"): {"v6"}, netip.MustParseAddr("10.0.0.1"): nil},
			Any:      map[string]any{"i": int64(1), "f": 1.0, "n": nil},
			Raw:      json.RawMessage(`{"b": 1,  "a": 1}`),
			Own:      temp, PtrOwn: &temp, Owns: []Temperature{{}, temp},
			Addr: netip.MustParseAddr("fe80::1%eth0"), Std: time.Date(2024, 2, 29, 1, 2, 3, 4, time.UTC),
			Wait: metav1.Duration{Duration: 1500 * time.Millisecond},
			At:   at, PtrAt: &metav1.Time{}, Micro: metav1.MicroTime(at),
			Port:     intstr.IntOrString{Type: intstr.String, IntVal: 1, StrVal: "http"},
			Ext:      runtime.RawExtension{Raw: []byte("no JSON")},
			Template: unstructured.Unstructured{Object: map[string]any{"no": "kind"}},
			Children: []WidgetSpec{{}, {Int8: 1, Children: []WidgetSpec{}}},
			Parent:   &WidgetSpec{Uint: 2},
			Labels:   map[Name]map[string][]string{"": nil, "a": {"b": nil, "": {}}},
		},
	}
}

func TestCustomTypeComesBackExactly(t *testing.T) {
	w := widget()
	c := codecFor(t, w)
	if c.ID() != codec.IDStruct {
		t.Fatal(c.Name())
	}
	b, err := c.Append(nil, w)
	if err != nil {
		t.Fatal(err)
	}
	again, err := c.Append(nil, widget())
	if err != nil || string(again) != string(b) {
		t.Fatalf("other bytes: %v", err)
	}
	obj, err := c.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	got := obj.(*Widget)
	// Only a quantity may come back in another shape.
	for k, q := range got.Spec.ByNumber {
		if want := w.Spec.ByNumber[k]; q.Cmp(want) != 0 {
			t.Errorf("quantity %d: %v", k, &q)
		}
	}
	got.Spec.ByNumber, w.Spec.ByNumber = nil, nil
	if !reflect.DeepEqual(got, w) { // nil stays nil, empty stays empty
		t.Errorf("is  %+v\nwas %+v", got, w)
	}
}

type (
	withFunc struct {
		Widget
		Inner struct{ F func() }
	}
	withKey struct {
		Widget
		M map[[2]int]string
	}
	withIface struct {
		Widget
		E error
	}
	loop struct {
		Widget
		Next *loop
	}
)

func TestUnsupportedTypesAreNamed(t *testing.T) {
	for want, example := range map[string]runtime.Object{"Inner: F": &withFunc{}, "M:": &withKey{}, "E:": &withIface{}} {
		if _, err := codec.For(example); !errors.Is(err, codec.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%T: %v", example, err)
		}
	}
	w := widget()
	w.Spec.Ext = runtime.RawExtension{Object: &Widget{}}
	if _, err := codecFor(t, w).Append(nil, w); !errors.Is(err, codec.ErrUnsupported) || !strings.Contains(err.Error(), "spec: ext: Object") {
		t.Errorf("RawExtension with an object of unknown type: %v", err)
	}
	l := &loop{}
	l.Next = l
	if _, err := codecFor(t, l).Append(nil, l); !errors.Is(err, codec.ErrUnsupported) {
		t.Errorf("cycle: %v", err)
	}
}
