package codec

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// plan says how values of one type are written and read. Both functions get an
// addressable value; decode gets a zero value.
type plan struct {
	encode func(*encoder, reflect.Value) error
	decode func(*decoder, reflect.Value) error
	// nilable: encode may write a nil. Below a pointer that nil would mean the
	// pointer's own.
	nilable bool
}

var plans struct {
	sync.Mutex
	done map[reflect.Type]*plan
}

// planFor returns the plan of t. It is made once.
func planFor(t reflect.Type) (*plan, error) {
	plans.Lock()
	defer plans.Unlock()
	b := &builder{made: map[reflect.Type]*plan{}}
	p, err := b.plan(t)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", t, err)
	}
	if plans.done == nil {
		plans.done = map[reflect.Type]*plan{}
	}
	for t, p := range b.made {
		plans.done[t] = p
	}
	return p, nil
}

// builder makes plans. Types may be recursive, so a plan is known before it is
// complete. No plan becomes public before all are complete.
type builder struct{ made map[reflect.Type]*plan }

func (b *builder) plan(t reflect.Type) (*plan, error) {
	if p := plans.done[t]; p != nil {
		return p, nil
	}
	if p := b.made[t]; p != nil {
		return p, nil
	}
	p := &plan{}
	b.made[t] = p
	return p, b.build(p, t)
}

func (b *builder) build(p *plan, t reflect.Type) error {
	if leaf, ok := leaves[t]; ok {
		*p = leaf
		return nil
	}
	by := marshaledBy(t)
	if name, may := borrowed(t); may && by != byFields {
		return fmt.Errorf("%w: the marshalers of %v may be those of the embedded %s, which leave out its other fields", ErrUnsupported, t, name)
	}
	switch by {
	case byJSON:
		*p = jsonPlan
		return nil
	case byText:
		*p = textPlan
		return nil
	}
	switch t.Kind() {
	case reflect.Struct:
		return b.structPlan(p, t)
	case reflect.Pointer:
		return b.pointerPlan(p, t)
	case reflect.Slice:
		return b.slicePlan(p, t)
	case reflect.Array:
		return b.arrayPlan(p, t)
	case reflect.Map:
		return b.mapPlan(p, t)
	case reflect.Interface:
		if t.NumMethod() == 0 {
			*p = anyPlan
			return nil
		}
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		*p = scalarPlan(t.Kind())
		return nil
	}
	return fmt.Errorf("%w: type %v", ErrUnsupported, t)
}

// leaves are types with their own forms.
var leaves = map[reflect.Type]plan{
	reflect.TypeFor[resource.Quantity]():         quantityPlan,
	reflect.TypeFor[metav1.Time]():               timePlan,
	reflect.TypeFor[metav1.MicroTime]():          microTimePlan,
	reflect.TypeFor[metav1.FieldsV1]():           fieldsV1Plan,
	reflect.TypeFor[unstructured.Unstructured](): unstructuredPlan,
	reflect.TypeFor[runtime.Object]():            objectPlan,
	reflect.TypeFor[json.RawMessage]():           bytesPlan,
}

// plain are types whose fields hold more than their JSON.
var plain = map[reflect.Type]bool{
	reflect.TypeFor[metav1.Duration]():      true,
	reflect.TypeFor[intstr.IntOrString]():   true,
	reflect.TypeFor[runtime.RawExtension](): true,
}

type marshaling int

const (
	byFields marshaling = iota
	byJSON
	byText
)

var (
	toJSON   = reflect.TypeFor[json.Marshaler]()
	fromJSON = reflect.TypeFor[json.Unmarshaler]()
	toText   = reflect.TypeFor[encoding.TextMarshaler]()
	fromText = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// marshaledBy returns the marshalers of t that store its values, if any do.
func marshaledBy(t reflect.Type) marshaling {
	pair := pairOf(t)
	if _, leaf := leaves[t]; !leaf && (plain[t] || pair != byFields && inParts(t)) {
		return byFields
	}
	return pair
}

func isLeaf(t reflect.Type) bool {
	_, ok := leaves[t]
	return ok || marshaledBy(t) != byFields
}

// jsonName is the field's name from its json tag, otherwise its Go name.
func jsonName(f reflect.StructField) (name string, tagged bool) {
	name, _, _ = strings.Cut(f.Tag.Get("json"), ",")
	if name == "" || name == "-" {
		return f.Name, false
	}
	return name, true
}
