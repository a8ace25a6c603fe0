package codec_test

import (
	"fmt"
	"math/rand"
	"reflect"
	"sort"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/resource"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"
)

// quantities are of every format, scale and sign, and one is not canonical.
var quantities = []string{"0", "1", "-7", "100m", "1500m", "0.5", "2Gi", "1.5Gi", "12e6", "3n", "-250u",
	"9223372036854775807", "100E", "123456789012345678901234567890"}

// filler fills objects; with typeMeta also apiVersion and kind, at any depth. It fills
// what Kubernetes' own filler leaves empty: see [TestFillerFills].
func filler(seed int64, typeMeta bool) *randfill.Filler {
	own := func(serializer.CodecFactory) []any {
		return []any{
			func(m *metav1.TypeMeta, c randfill.Continue) {
				if *m = (metav1.TypeMeta{}); typeMeta {
					m.APIVersion, m.Kind = "group"+c.String(4)+"/v1", "Kind"+c.String(4)
				}
			},
			func(q *resource.Quantity, c randfill.Continue) {
				*q = resource.MustParse(quantities[c.Intn(len(quantities))])
			},
			func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(4e9)-1e9, 0) },
			func(t *metav1.MicroTime, c randfill.Continue) {
				*t = metav1.MicroTime{Time: time.UnixMicro(c.Int63n(4e15) - 1e15)}
			},
			func(f *metav1.FieldsV1, c randfill.Continue) {
				// as on the wire: compact, not sorted
				f.SetRawString(fmt.Sprintf(`{"f:z":{"f:%d<":{}},"f:a":{}}`, c.Intn(100)))
			},
			func(e *metav1.ManagedFieldsEntry, c randfill.Continue) { c.FillNoCustom(e) },
			func(r *runtime.RawExtension, c randfill.Continue) {
				r.Raw = fmt.Appendf(nil, `{"z":%d,"a":[1.0,"<&"]}`, c.Intn(100))
			},
			func(s *intstr.IntOrString, c randfill.Continue) {
				if *s = intstr.FromInt32(c.Int31()); c.Bool() {
					*s = intstr.FromString(c.String(8))
				}
			},
			func(u *unstructured.Unstructured, c randfill.Continue) {
				u.Object = map[string]any{"kind": "K", "n": c.Int63(), "f": 2.5, "l": []any{nil, true, c.String(3)}}
			},
			func(s *schemaJSON, c randfill.Continue) { s.Raw = fmt.Appendf(nil, `{"z":%d}`, c.Intn(100)) },
			func(s *schemaPropsOrBool, c randfill.Continue) {
				if c.Fill(&s.Schema); s.Schema == nil {
					s.Allows = c.Bool()
				}
			},
			func(s *string, c randfill.Continue) { *s = c.String(12) },
		}
	}
	funcs := fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, own) // the later override the earlier
	return fuzzer.FuzzerFor(funcs, rand.NewSource(seed), scheme.Codecs).NilChance(.2).NumElements(0, 2)
}

// kinds are the Go types of client-go's scheme, lists and options included.
func kinds() []reflect.Type {
	seen := map[reflect.Type]bool{}
	var out []reflect.Type
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		if gvk.Version != runtime.APIVersionInternal && !seen[t] {
			seen[t] = true
			out = append(out, t)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].String() < out[j].String() })
	return out
}

// count counts values that are not zero, of some types, in v.
func count(v reflect.Value, types map[reflect.Type]int) {
	if _, ok := types[v.Type()]; ok && !v.IsZero() {
		types[v.Type()]++
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			count(v.Elem(), types)
		}
	case reflect.Slice:
		for i := range v.Len() {
			count(v.Index(i), types)
		}
	case reflect.Map:
		for it := v.MapRange(); it.Next(); {
			count(it.Value(), types)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				count(v.Field(i), types)
			}
		}
	}
}

// TestFillerFills: the filler leaves no zero values. They prove nothing, since a codec
// that loses them gives them back.
func TestFillerFills(t *testing.T) {
	types := map[reflect.Type]int{
		reflect.TypeFor[resource.Quantity]():    0,
		reflect.TypeFor[metav1.Time]():          0,
		reflect.TypeFor[metav1.MicroTime]():     0,
		reflect.TypeFor[metav1.FieldsV1]():      0,
		reflect.TypeFor[metav1.TypeMeta]():      0,
		reflect.TypeFor[intstr.IntOrString]():   0,
		reflect.TypeFor[runtime.RawExtension](): 0,
		reflect.TypeFor[[]byte]():               0,
	}
	f := filler(1, true)
	for range 4 {
		for _, k := range kinds() {
			obj := reflect.New(k)
			f.Fill(obj.Interface())
			count(obj, types)
		}
	}
	for typ, n := range types {
		if n < 10 {
			t.Errorf("%v: only %d that are not zero", typ, n)
		}
		t.Logf("%v: %d", typ, n)
	}
}
