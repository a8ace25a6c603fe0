package codec_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"math/big"
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

// Widget is a custom resource with all that JSON can hold.
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
	Template *unstructured.Unstructured   `json:"template"`
	Children []WidgetSpec                 `json:"children"`
	Parent   *WidgetSpec                  `json:"parent"`
	Labels   map[Name]map[string][]string `json:"labels"`
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
	one, temp := 1, Temperature{77}
	ptr := &one
	at := metav1.Unix(5, 0)
	return &Widget{
		TypeMeta:   metav1.TypeMeta{APIVersion: "example.org/v1", Kind: "Widget"},
		ObjectMeta: metav1.ObjectMeta{Name: "w", Annotations: map[string]string{"z": "", "a": "\x00"}},
		Spec: WidgetSpec{
			Shared: Shared{"shared"}, Optional: &Optional{"optional"},
			Int8: math.MinInt8, Uint: math.MaxUint64, Float32: math.SmallestNonzeroFloat32,
			Bytes: []byte{0xFF, 0}, Array: [3]string{"", "b"}, Ptr: &ptr,
			Matrix:   [][]*int{nil, {}, {nil, &one}},
			ByNumber: map[int16]resource.Quantity{-1: resource.MustParse("1.5Gi"), 1: resource.MustParse("3m")},
			ByAddr:   map[netip.Addr]*Shared{netip.MustParseAddr("::1"): {"v6"}, netip.MustParseAddr("10.0.0.1"): nil},
			Any:      map[string]any{"i": int64(math.MaxInt64), "f": 1.5, "n": nil},
			Raw:      json.RawMessage(`{"b":1,"a":"<"}`),
			Own:      temp, PtrOwn: &temp, Owns: []Temperature{{}, temp},
			Addr: netip.MustParseAddr("fe80::1%eth0"), Std: time.Date(2024, 2, 29, 1, 2, 3, 4, time.UTC),
			Wait: metav1.Duration{Duration: 1500 * time.Millisecond},
			At:   at, PtrAt: &at, Micro: metav1.MicroTime(at),
			Port:     intstr.FromString("http"),
			Ext:      runtime.RawExtension{Raw: []byte(`{"z":1.0,"a":"<&"}`)},
			Template: &unstructured.Unstructured{Object: map[string]any{"kind": "K", "n": int64(1)}},
			Children: []WidgetSpec{{}, {Int8: 1, Children: []WidgetSpec{}}},
			Parent:   &WidgetSpec{Uint: 2},
			Labels:   map[Name]map[string][]string{"": nil, "a": {"b": nil, "": {}}},
		},
	}
}

func TestCustomTypeComesBackExactly(t *testing.T) {
	w := widget()
	c := codecFor(t, w)
	if c.ID() != codec.IDJSON {
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
	for i := range w.Spec.Children { // null comes back as null
		got.Spec.Children[i].Raw = nil
	}
	got.Spec.Parent.Raw = nil
	if !reflect.DeepEqual(got, w) { // nil stays nil, empty stays empty where a tag does not say omitempty
		t.Errorf("is  %+v\nwas %+v", got, w)
	}
}

// of is an object with a field of any type.
type of[T any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec T `json:"spec"`
}

func (o *of[T]) DeepCopyObject() runtime.Object { c := *o; return &c }

// Types whose marshalers keep less than they hold.
type (
	redactedString string
	redactedStruct struct{ User, Password string }
	redactsHidden  struct{ user, password string }
	rounds         struct{ t time.Time }
	hidden         struct{ User, cache string }
	untagged       struct {
		Kept string
		Left string `json:"-"`
	}
)

func (redactedString) MarshalJSON() ([]byte, error)    { return []byte(`"***"`), nil }
func (r *redactedString) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, (*string)(r)) }
func (redactedStruct) MarshalJSON() ([]byte, error)    { return []byte("{}"), nil }
func (*redactedStruct) UnmarshalJSON([]byte) error     { return nil }
func (r redactsHidden) MarshalJSON() ([]byte, error)   { return json.Marshal(r.user) }
func (r *redactsHidden) UnmarshalJSON(b []byte) error  { return json.Unmarshal(b, &r.user) }
func (r rounds) MarshalJSON() ([]byte, error)          { return json.Marshal(r.t.Truncate(time.Second)) }
func (r *rounds) UnmarshalJSON(b []byte) error         { return json.Unmarshal(b, &r.t) }

// TestTypesThatCannotBeKept: For refuses types whose empty object does not come back.
func TestTypesThatCannotBeKept(t *testing.T) {
	for want, example := range map[string]runtime.Object{
		"func()":          &of[struct{ F func() }]{},
		"chan int":        &of[struct{ C chan int }]{},
		"map[bool]string": &of[map[bool]string]{},
		"complex128":      &of[complex128]{},
		".Spec":           &of[redactedString]{},
		"no pointer":      nil,
	} {
		c, err := codec.For(example)
		if !errors.Is(err, codec.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%T, %s: %v %v", example, want, c, err)
		}
	}
}

// TestObjectsThatCannotBeKept: what JSON has no form for is refused, and nothing is appended.
func TestObjectsThatCannotBeKept(t *testing.T) {
	for want, obj := range map[string]runtime.Object{
		"NaN":                 &of[float64]{Spec: math.NaN()},
		"invalid character":   &of[runtime.RawExtension]{Spec: runtime.RawExtension{Raw: []byte("no JSON")}},
		"chan int":            &of[any]{Spec: make(chan int)},
		"encountered a cycle": loops(),
	} {
		b, err := codecFor(t, obj).Append([]byte("dst"), obj)
		if !errors.Is(err, codec.ErrUnsupported) || !strings.Contains(err.Error(), want) || string(b) != "dst" {
			t.Errorf("%T, %s: %q %v", obj, want, b, err)
		}
	}
}

type loop struct{ Next *loop }

func loops() *of[*loop] {
	l := &loop{}
	l.Next = l
	return &of[*loop]{Spec: l}
}

// TestRoundTripNotices: RoundTrip notices what JSON or a type's marshalers leave out.
func TestRoundTripNotices(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.FixedZone("z", 3600))
	for _, tc := range []struct {
		obj  runtime.Object
		want string
	}{
		{&of[redactsHidden]{Spec: redactsHidden{"u", "p"}}, ".Spec.password"},
		{&of[[]redactsHidden]{Spec: []redactsHidden{{"u", ""}, {"u", "p"}}}, ".Spec[1].password"},
		{&of[map[string]*redactsHidden]{Spec: map[string]*redactsHidden{"k": {"u", "p"}}}, ".Spec[k].password"},
		{&of[redactsHidden]{Spec: redactsHidden{"u", ""}}, ""},
		{&of[redactedStruct]{Spec: redactedStruct{"u", "p"}}, ".Spec.User"},
		{&of[hidden]{Spec: hidden{"u", "c"}}, ".Spec.cache"},
		{&of[hidden]{Spec: hidden{User: "u"}}, ""},
		{&of[untagged]{Spec: untagged{"k", "l"}}, ".Spec.Left"},
		{&of[string]{Spec: "\xff"}, ".Spec"},
		{&of[any]{Spec: uint8(1)}, ".Spec"},
		{&of[any]{Spec: 1.0}, ".Spec"}, // comes back as an int64, as from a server
		{&of[json.RawMessage]{Spec: json.RawMessage(`{"a": 1}`)}, ".Spec"},
		{&of[runtime.RawExtension]{Spec: runtime.RawExtension{Object: unstructuredOf(map[string]any{"kind": "K"})}},
			".Spec"},
		{&of[rounds]{Spec: rounds{at}}, ".Spec.t"},
		{&of[rounds]{Spec: rounds{at.Truncate(time.Second)}}, ""},
		{&of[time.Time]{Spec: at}, ""},
		{&of[any]{Spec: map[string]any{"a": []any{1.5, nil, int64(math.MinInt64)}}}, ""},
		{&of[uint64]{Spec: math.MaxUint64}, ""},
		{&of[*big.Int]{Spec: new(big.Int).Lsh(big.NewInt(-3), 200)}, ""},
		{&of[netip.Prefix]{Spec: netip.MustParsePrefix("10.0.0.0/8")}, ""},
		{widget(), ""},
	} {
		c := codecFor(t, tc.obj)
		b, err := c.Append(nil, tc.obj)
		if err != nil {
			t.Fatalf("%T: %v", tc.obj, err)
		}
		err = codec.RoundTrip(c, b, tc.obj)
		found := errors.Is(err, codec.ErrUnsupported) && strings.Contains(err.Error(), tc.want)
		if tc.want == "" && err != nil || tc.want != "" && !found {
			t.Errorf("%T, %q: %v", tc.obj, tc.want, err)
		}
	}
	c := codecFor(t, widget())
	w := widget()
	w.Spec.Own = Temperature{1}
	b, err := c.Append(nil, w)
	if err != nil {
		t.Fatal(err)
	}
	if err := codec.RoundTrip(c, b, widget()); err == nil || !strings.Contains(err.Error(), ".Spec.Own.kelvin") {
		t.Error(err)
	}
	if err := codec.RoundTrip(c, b[1:], w); !errors.Is(err, codec.ErrUnsupported) {
		t.Error(err)
	}
}

// message looks like one that Go's protobuf generates.
type message struct {
	sizeCache     int32
	unknownFields []byte
	Host          string
}

func (*message) ProtoReflect()                  {}
func (m *message) MarshalJSON() ([]byte, error) { return json.Marshal(m.Host) }
func (m *message) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &m.Host) }

// TestProtobufMessages: the size that protobuf messages cache need not come back.
func TestProtobufMessages(t *testing.T) {
	for obj, ok := range map[*of[message]]bool{
		{Spec: message{Host: "h", sizeCache: 5}}:             true,
		{Spec: message{Host: "h", unknownFields: []byte{1}}}: false,
	} {
		c := codecFor(t, obj)
		b, err := c.Append(nil, obj)
		if err != nil {
			t.Fatal(err)
		}
		if err := codec.RoundTrip(c, b, obj); (err == nil) != ok {
			t.Errorf("%+v: %v", obj.Spec, err)
		}
	}
}

// Types as users write them for controller-gen, with types of the API machinery.
type (
	schemaJSON        struct{ Raw []byte }
	schemaPropsOrBool struct {
		Allows bool // if there is no Schema
		Schema *schemaProps
	}
	schemaProps struct {
		Type       string                 `json:"type,omitempty"`
		Default    *schemaJSON            `json:"default,omitempty"`
		Enum       []schemaJSON           `json:"enum,omitempty"`
		Properties map[string]schemaProps `json:"properties,omitempty"`
		Items      *schemaPropsOrBool     `json:"items,omitempty"`
		Maximum    *float64               `json:"maximum,omitempty"`
	}
	volatileTime struct {
		Inner metav1.Time `json:",inline"`
	}
	phase   string
	crdSpec struct {
		Replicas  *int32                             `json:"replicas,omitempty"`
		Selector  *metav1.LabelSelector              `json:"selector"`
		Resources map[string]resource.Quantity       `json:"resources,omitempty"`
		MaxSurge  *intstr.IntOrString                `json:"maxSurge,omitempty"`
		Config    *runtime.RawExtension              `json:"config,omitempty"`
		Values    *schemaJSON                        `json:"values,omitempty"`
		Schema    schemaProps                        `json:"schema"`
		Timeout   metav1.Duration                    `json:"timeout"`
		Templates []unstructured.Unstructured        `json:"templates,omitempty"`
		Nested    map[string][]map[string]*crdStatus `json:"nested,omitempty"`
	}
	crdStatus struct {
		Phase      phase              `json:"phase,omitempty"`
		Conditions []metav1.Condition `json:"conditions,omitempty"`
		Since      *metav1.Time       `json:"since,omitempty"`
		Precise    metav1.MicroTime   `json:"precise,omitempty"`
		Seen       volatileTime       `json:"seen,omitempty"`
		Observed   int64              `json:"observedGeneration,omitempty"`
	}
	crd struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata,omitempty"`

		Spec   crdSpec   `json:"spec,omitempty"`
		Status crdStatus `json:"status,omitempty"`
	}
)

func (s schemaJSON) MarshalJSON() ([]byte, error) { return []byte(cmp.Or(string(s.Raw), "null")), nil }
func (s *schemaJSON) UnmarshalJSON(b []byte) error {
	if s.Raw = nil; string(b) != "null" {
		s.Raw = bytes.Clone(b)
	}
	return nil
}

func (s schemaPropsOrBool) MarshalJSON() ([]byte, error) {
	if s.Schema == nil {
		return json.Marshal(s.Allows)
	}
	return json.Marshal(s.Schema)
}

func (s *schemaPropsOrBool) UnmarshalJSON(b []byte) error {
	if b[0] == '{' {
		return json.Unmarshal(b, &s.Schema)
	}
	return json.Unmarshal(b, &s.Allows)
}
func (v volatileTime) MarshalJSON() ([]byte, error)  { return v.Inner.MarshalJSON() }
func (v *volatileTime) UnmarshalJSON(b []byte) error { return v.Inner.UnmarshalJSON(b) }
func (c *crd) DeepCopyObject() runtime.Object        { d := *c; return &d }
