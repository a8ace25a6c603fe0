package codec_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"net/url"
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

// of is an object with a field of any type.
type of[T any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec T `json:"spec"`
}

func (o *of[T]) DeepCopyObject() runtime.Object { c := *o; return &c }

// Types whose marshalers keep less than they hold, or more than is exported.
type (
	redactedString string
	redactedInt    int
	redactedList   []string
	redactedKey    int
	redactedStruct struct{ User, Password string }

	onlyMarshals  struct{ User, Password string }
	onlyReads     struct{ User, Password string }
	readsHidden   struct{ User, password string }
	readsTextHid  struct{ user string }
	marshalsHid   struct{ User, password string }
	binaryHidden  struct{ user string }
	hidden        struct{ User, cache string }
	redactsHidden struct{ user, password string }
	rounds        struct{ t time.Time }

	promotedTime struct {
		metav1.Time
		Zone string
	}
	promotedPointer struct {
		*resource.Quantity
		Unit string
	}
	promotedNested struct {
		promotedTime
		More string
	}
	promotedOwn struct {
		Temperature
		Place  string
		hidden int
	}
	embedsMarshaler struct {
		json.Marshaler
		Extra string
	}
	private      struct{ Name string }
	embedsTagged struct {
		private `json:"private"`
		Extra   string
	}
	privateTemp   Temperature
	embedsPrivate struct {
		privateTemp
		Extra string
	}
	embedsPointer struct{ *private }
	anyOwn        struct{ V any }
	selfish       struct {
		Name string
		Next *selfish
		By   map[string]selfish
	}
)

func (redactedString) MarshalJSON() ([]byte, error)    { return []byte(`"***"`), nil }
func (r *redactedString) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, (*string)(r)) }
func (redactedInt) MarshalText() ([]byte, error)       { return []byte("0"), nil }
func (*redactedInt) UnmarshalText([]byte) error        { return nil }
func (redactedList) MarshalJSON() ([]byte, error)      { return []byte("[]"), nil }
func (*redactedList) UnmarshalJSON([]byte) error       { return nil }
func (redactedKey) MarshalText() ([]byte, error)       { return []byte("key"), nil }
func (*redactedKey) UnmarshalText([]byte) error        { return nil }
func (redactedStruct) MarshalJSON() ([]byte, error)    { return []byte("{}"), nil }
func (*redactedStruct) UnmarshalJSON([]byte) error     { return nil }
func (onlyMarshals) MarshalJSON() ([]byte, error)      { return []byte("{}"), nil }
func (onlyMarshals) MarshalText() ([]byte, error)      { return nil, nil }
func (onlyMarshals) MarshalMsgpack() ([]byte, error)   { return []byte{0xc0}, nil }
func (onlyMarshals) MarshalBinary() ([]byte, error)    { return nil, nil }
func (*onlyReads) UnmarshalJSON([]byte) error          { return errors.New("unused") }
func (*onlyReads) UnmarshalMsgpack([]byte) error       { return errors.New("unused") }
func (r *readsHidden) UnmarshalJSON([]byte) error      { r.password = "p"; return nil }
func (r *readsTextHid) UnmarshalText([]byte) error     { r.user = "u"; return nil }
func (m marshalsHid) MarshalJSON() ([]byte, error)     { return json.Marshal(m.User + m.password) }
func (b binaryHidden) MarshalBinary() ([]byte, error)  { return []byte(b.user), nil }
func (b *binaryHidden) UnmarshalBinary(d []byte) error { b.user = string(d); return nil }
func (r redactsHidden) MarshalJSON() ([]byte, error)   { return json.Marshal(r.user) }
func (r *redactsHidden) UnmarshalJSON(b []byte) error  { return json.Unmarshal(b, &r.user) }
func (r rounds) MarshalJSON() ([]byte, error)          { return json.Marshal(r.t.Truncate(time.Second)) }
func (r *rounds) UnmarshalJSON(b []byte) error         { return json.Unmarshal(b, &r.t) }
func (p privateTemp) MarshalJSON() ([]byte, error)     { return Temperature(p).MarshalJSON() }
func (p *privateTemp) UnmarshalJSON(b []byte) error    { return (*Temperature)(p).UnmarshalJSON(b) }
func (a anyOwn) MarshalJSON() ([]byte, error)          { return json.Marshal(a.V) }
func (a *anyOwn) UnmarshalJSON(b []byte) error         { return json.Unmarshal(b, &a.V) }
func (selfish) MarshalJSON() ([]byte, error)           { return []byte("null"), nil }
func (*selfish) UnmarshalJSON([]byte) error            { return nil }

// TestMarshalersThatLeaveOut: a type's parts are stored, whatever its marshalers leave
// out.
func TestMarshalersThatLeaveOut(t *testing.T) {
	n := int64(7)
	two := "two"
	quantity := resource.MustParse("5Mi")
	for _, obj := range []runtime.Object{
		&of[redactedString]{Spec: "secret"},
		&of[*redactedString]{Spec: (*redactedString)(&two)},
		&of[redactedInt]{Spec: 5},
		&of[redactedList]{Spec: redactedList{"a", "b"}},
		&of[map[redactedKey]string]{Spec: map[redactedKey]string{1: "a", 2: "b"}},
		&of[map[redactedString]redactedInt]{Spec: map[redactedString]redactedInt{"a": 1, "b": 2}},
		&of[redactedStruct]{Spec: redactedStruct{"u", "p"}},
		&of[[]*redactedStruct]{Spec: []*redactedStruct{nil, {"u", "p"}}},
		&of[onlyMarshals]{Spec: onlyMarshals{"u", "p"}},
		&of[onlyReads]{Spec: onlyReads{"u", "p"}},
		&of[promotedTime]{Spec: promotedTime{metav1.Unix(5, 0), "zone"}},
		&of[promotedPointer]{Spec: promotedPointer{&quantity, "bytes"}},
		&of[promotedPointer]{Spec: promotedPointer{nil, "bytes"}},
		&of[promotedOwn]{Spec: promotedOwn{Temperature{5}, "here", 0}},
		&of[embedsTagged]{Spec: embedsTagged{private{"name"}, "extra"}},
		&of[selfish]{Spec: selfish{"a", &selfish{Name: "b"}, map[string]selfish{"c": {Name: "d"}}}},
		&of[net.IP]{Spec: net.IPv4(1, 2, 3, 4).To4()},
		&of[hidden]{Spec: hidden{User: "u"}},
		&of[marshalsHid]{Spec: marshalsHid{User: "u"}},
		&of[url.URL]{Spec: url.URL{Scheme: "http", Host: "h", RawQuery: "q"}},
		&of[struct {
			A *int64 `json:"a,omitempty"`
			B string `json:"-"`
			C *string
			D map[int32]*string
			E [2]bool
		}]{Spec: struct {
			A *int64 `json:"a,omitempty"`
			B string `json:"-"`
			C *string
			D map[int32]*string
			E [2]bool
		}{A: &n, B: "kept", D: map[int32]*string{-1: nil, 3: &two}, E: [2]bool{true}}},
	} {
		c, err := codec.For(obj)
		if err != nil {
			t.Errorf("%T: %v", obj, err)
			continue
		}
		b, err := c.Append(nil, obj)
		if err != nil {
			t.Errorf("%T: %v", obj, err)
			continue
		}
		back, err := c.Decode(b)
		if err != nil {
			t.Errorf("%T: %v", obj, err)
			continue
		}
		if q := reflect.ValueOf(back).Elem().FieldByName("Spec"); q.Type() == reflect.TypeFor[promotedPointer]() && !q.Field(0).IsNil() {
			if s := quantity.String(); q.Field(0).Interface().(*resource.Quantity).String() != s {
				t.Errorf("%T: %+v", obj, back)
			}
		} else if !reflect.DeepEqual(back, obj) {
			t.Errorf("%T: was %+v, is %+v", obj, obj, back)
		}
		if err := codec.RoundTrip(c, b, obj); err != nil {
			t.Errorf("%T: %v", obj, err)
		}
	}
}

// TestTypesThatCannotBeKept: For refuses types that show that they cannot be kept.
func TestTypesThatCannotBeKept(t *testing.T) {
	for want, example := range map[string]runtime.Object{
		"password":                     &of[readsHidden]{},
		"user":                         &of[[]readsTextHid]{},
		"json.Marshaler":               &of[embedsMarshaler]{},
		"embedded privateTemp":         &of[*embedsPrivate]{},
		"embedded promotedTime":        &of[promotedNested]{},
		"func()":                       &of[struct{ F func() }]{},
		"chan int":                     &of[struct{ C chan int }]{},
		"map key bool":                 &of[map[bool]string]{},
		"complex128":                   &of[complex128]{},
		"error":                        &of[error]{},
		"map key codec_test.onlyReads": &of[map[onlyReads]string]{},
	} {
		if c, err := codec.For(example); !errors.Is(err, codec.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%T, %s: %v %v", example, want, c, err)
		}
	}
}

// TestObjectsThatCannotBeKept: an object with a set field that is not exported is
// refused, not stored without it.
func TestObjectsThatCannotBeKept(t *testing.T) {
	for want, obj := range map[string]runtime.Object{
		"spec: cache":    &of[hidden]{Spec: hidden{"u", "c"}},
		"spec: password": &of[marshalsHid]{Spec: marshalsHid{"u", "p"}},
		"spec: user":     &of[binaryHidden]{Spec: binaryHidden{"u"}},
		"spec: private":  &of[embedsPointer]{Spec: embedsPointer{&private{"n"}}},
		"spec: hidden":   &of[promotedOwn]{Spec: promotedOwn{hidden: 1}},
		"username":       &of[url.URL]{Spec: url.URL{User: url.User("u")}},
		"uint8":          &of[any]{Spec: uint8(1)},
	} {
		c := codecFor(t, obj)
		if b, err := c.Append(nil, obj); !errors.Is(err, codec.ErrUnsupported) || !strings.Contains(err.Error(), want) {
			t.Errorf("%T, %s: %q %v", obj, want, b, err)
		}
	}
}

// TestRoundTripNotices: RoundTrip notices what marshalers of a type with hidden state
// leave out.
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
		{&of[rounds]{Spec: rounds{at}}, ".Spec.t"},
		{&of[rounds]{Spec: rounds{at.Truncate(time.Second)}}, ""},
		{&of[anyOwn]{Spec: anyOwn{int64(1)}}, ".Spec.V"}, // comes back as a float64
		{&of[anyOwn]{Spec: anyOwn{map[string]any{"a": []any{1.5, nil}}}}, ""},
		{&of[time.Time]{Spec: at}, ""},
		{&of[any]{Spec: map[string]any(nil)}, ""}, // an empty map is as good
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
		if tc.want == "" && err != nil || tc.want != "" && (!errors.Is(err, codec.ErrUnsupported) || !strings.Contains(err.Error(), tc.want+" of ")) {
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
		Allows bool
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

func (s schemaJSON) MarshalJSON() ([]byte, error)         { return s.Raw, nil }
func (s *schemaJSON) UnmarshalJSON(b []byte) error        { s.Raw = append(s.Raw[:0], b...); return nil }
func (s schemaPropsOrBool) MarshalJSON() ([]byte, error)  { return json.Marshal(s.Schema) }
func (s *schemaPropsOrBool) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &s.Schema) }
func (v volatileTime) MarshalJSON() ([]byte, error)       { return v.Inner.MarshalJSON() }
func (v *volatileTime) UnmarshalJSON(b []byte) error      { return v.Inner.UnmarshalJSON(b) }
func (c *crd) DeepCopyObject() runtime.Object             { d := *c; return &d }

// TestCustomResourcesAreKept: ordinary custom resources are accepted, and come back
// whole.
func TestCustomResourcesAreKept(t *testing.T) {
	c := codecFor(t, &crd{})
	for seed := range int64(200) {
		obj := &crd{}
		filler(seed, seed%2 == 1).MaxDepth(12).Fill(obj)
		b, err := c.Append(nil, obj)
		if err == nil {
			err = codec.RoundTrip(c, b, obj)
		}
		if err != nil {
			t.Fatal(fmt.Errorf("%d: %w", seed, err))
		}
	}
	for _, k := range kinds() {
		obj := newOf(k)
		filler(1, true).Fill(obj)
		c := codecFor(t, obj)
		b, err := c.Append(nil, obj)
		if err == nil {
			err = codec.RoundTrip(c, b, obj)
		}
		if err != nil {
			t.Errorf("%v: %v", k, err)
		}
	}
}
