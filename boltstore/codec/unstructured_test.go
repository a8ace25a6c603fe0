package codec_test

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore/codec"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func unstructuredOf(m map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: m}
}

func TestUnstructuredIsExact(t *testing.T) {
	ints := []any{}
	for shift := range 64 {
		for _, d := range []int64{-1, 0, 1} {
			n := int64(1)<<shift + d
			ints = append(ints, n, -n)
		}
	}
	for name, v := range map[string]any{
		"integers":        ints,
		"integral floats": []any{0.0, 1.0, -1.0, 1e9, 1e18, float64(math.MaxInt64)},
		"floats":          []any{0.1, -2.5, math.MaxFloat64, math.SmallestNonzeroFloat64, math.Inf(1)},
		"strings": []any{"", "a", "\x00", "\xff\xfe", strings.Repeat("x", 31), strings.Repeat("x", 32),
			strings.Repeat("x", 70_000)},
		"nil and bool": []any{nil, true, false},
		"empty":        []any{[]any{}, map[string]any{}},
		"wide array":   make([]any, 70_000),
		"map":          map[string]any{"": int64(1), "b": map[string]any{"a": 1.0}, "a": nil},
	} {
		t.Run(name, func(t *testing.T) {
			u := unstructuredOf(map[string]any{"apiVersion": "v1", "kind": "K", "v": v})
			c := codecFor(t, u)
			comesBack(t, c, u)
			b, _ := c.Append(nil, u)
			if got, err := c.Decode(b); err != nil || !reflect.DeepEqual(got, u) { // types too
				t.Fatalf("%v, %v", got, err)
			}
		})
	}
	for name, m := range map[string]map[string]any{"nil object": nil, "empty object": {}} {
		t.Run(name, func(t *testing.T) {
			b, err := codecFor(t, unstructuredOf(nil)).Append(nil, unstructuredOf(m))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := codecFor(t, unstructuredOf(nil)).Decode(b); err != nil ||
				!reflect.DeepEqual(got, unstructuredOf(m)) {
				t.Fatalf("%v, %v", got, err)
			}
		})
	}
}

func TestUnstructuredRefusesWhatJSONHasNot(t *testing.T) {
	c := codecFor(t, unstructuredOf(nil))
	for _, v := range []any{1, int32(1), uint64(1), float32(1), []string{"a"}, map[string]string{}, struct{}{},
		[]byte("b")} {
		if _, err := c.Append(nil, unstructuredOf(map[string]any{"v": v})); !errors.Is(err, codec.ErrUnsupported) {
			t.Errorf("%T: %v", v, err)
		}
	}
}

func nest(depth int) map[string]any {
	m := map[string]any{}
	for range depth - 1 {
		m = map[string]any{"": m}
	}
	return m
}

func TestDepthHasALimit(t *testing.T) {
	c := codecFor(t, unstructuredOf(nil))
	b, err := c.Append(nil, unstructuredOf(nest(10_000)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Decode(b); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Append(nil, unstructuredOf(nest(10_001))); !errors.Is(err, codec.ErrUnsupported) {
		t.Fatalf("encoded: %v", err)
	}
	for _, deep := range []string{"\x91", "\x81\xa0"} {
		if _, err := c.Decode([]byte("\x81\xa0" + strings.Repeat(deep, 1_000_000))); !errors.Is(err, codec.ErrDamaged) {
			t.Fatalf("decoded: %v", err)
		}
	}
}
